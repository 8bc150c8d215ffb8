"""The operators of ai.onnx.ml: trees, support vectors, linear models, and what feeds them."""
