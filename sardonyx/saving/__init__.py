"""Models as ONNX files: `sardonyx.save`."""
