"""The operators of com.microsoft, which onnxruntime's optimizer, quantizers and exporters write.

The standard has no schemas of them: the parameters of each function say what a node may have.
"""
