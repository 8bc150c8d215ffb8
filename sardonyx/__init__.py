"""sardonyx runs ONNX graphs on device arrays: one graph, unchanged, on JAX, CuPy and NumPy."""

from sardonyx import onnx_backend
from sardonyx.api import load, run_op
from sardonyx.directml import element_wise_identity
from sardonyx.errors import (
    BackendUnavailable,
    InternalError,
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    SardonyxError,
    UnsupportedModel,
)
from sardonyx.exporting.api import export
from sardonyx.graph.calls.results import Results
from sardonyx.graph.model.model import Model
from sardonyx.graph.programs.program import Program
from sardonyx.ops.definition import op
from sardonyx.sharding.api import shard
from sardonyx.to_jax.api import to_jax
from sardonyx.to_jax.params import load_params, low_rank, overlaid, save_params, split_params
from sardonyx.version import __version__

__all__ = [
    "BackendUnavailable",
    "InternalError",
    "InvalidInput",
    "InvalidModel",
    "LimitExceeded",
    "Model",
    "Program",
    "Results",
    "SardonyxError",
    "UnsupportedModel",
    "__version__",
    "element_wise_identity",
    "export",
    "load",
    "load_params",
    "low_rank",
    "onnx_backend",
    "op",
    "overlaid",
    "run_op",
    "save_params",
    "shard",
    "split_params",
    "to_jax",
]
