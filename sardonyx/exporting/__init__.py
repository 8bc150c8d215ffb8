"""A model as a portable program: one file that runs without ONNX, and on other platforms."""
