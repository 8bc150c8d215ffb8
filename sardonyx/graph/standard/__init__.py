"""The ONNX standard: element types, operator schemas, type inference and function bodies."""
