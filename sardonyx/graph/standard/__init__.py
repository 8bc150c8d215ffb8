"""What ONNX's own tables say: element types, signatures of operators, and bodies to expand them."""
