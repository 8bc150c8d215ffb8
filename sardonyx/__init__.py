"""sardonyx runs ONNX graphs on device arrays: one graph, unchanged, on JAX, CuPy and NumPy."""

from sardonyx import onnx_backend
from sardonyx.directml import element_wise_identity
from sardonyx.errors import (
    BackendUnavailable,
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    SardonyxError,
    UnsupportedModel,
)
from sardonyx.face import load, run_op
from sardonyx.graph.model import Model
from sardonyx.graph.program import Program
from sardonyx.graph.results import Results
from sardonyx.ops.definition import op

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "InvalidInput",
    "InvalidModel",
    "LimitExceeded",
    "Model",
    "Program",
    "Results",
    "SardonyxError",
    "UnsupportedModel",
    "element_wise_identity",
    "load",
    "onnx_backend",
    "op",
    "run_op",
]
