"""sardonyx runs ONNX graphs on device arrays: one graph, unchanged, on JAX, CuPy and NumPy."""

from sardonyx import onnx_backend
from sardonyx.api import load, run_op
from sardonyx.checkpoints import load_params, save_params
from sardonyx.comparing.api import compare
from sardonyx.comparing.comparison import Comparison
from sardonyx.directml import element_wise_identity
from sardonyx.errors import (
    BackendUnavailable,
    InternalError,
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    MissingFile,
    SardonyxError,
    UnsupportedModel,
)
from sardonyx.exporting.api import export
from sardonyx.functions.api import opset
from sardonyx.graph.calls.results import Results
from sardonyx.graph.model.model import Model
from sardonyx.graph.profiling.profile import Profile
from sardonyx.graph.programs.program import Program
from sardonyx.limits import Limits
from sardonyx.lora import apply_overlays, lora_init
from sardonyx.ops.definition import op
from sardonyx.profiling import profile
from sardonyx.recording.api import record
from sardonyx.saving.api import save
from sardonyx.sharding.api import shard
from sardonyx.targets.api import check
from sardonyx.to_jax.api import to_jax
from sardonyx.to_jax.params import split_params
from sardonyx.version import __version__

__all__ = [
    "BackendUnavailable",
    "Comparison",
    "InternalError",
    "InvalidInput",
    "InvalidModel",
    "LimitExceeded",
    "Limits",
    "MissingFile",
    "Model",
    "Profile",
    "Program",
    "Results",
    "SardonyxError",
    "UnsupportedModel",
    "__version__",
    "apply_overlays",
    "check",
    "compare",
    "element_wise_identity",
    "export",
    "load",
    "load_params",
    "lora_init",
    "onnx_backend",
    "op",
    "opset",
    "profile",
    "record",
    "run_op",
    "save",
    "save_params",
    "shard",
    "split_params",
    "to_jax",
]
