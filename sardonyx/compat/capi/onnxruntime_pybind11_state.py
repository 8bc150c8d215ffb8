"""The names of onnxruntime's compiled module, which programs import exceptions from.

>>> from sardonyx.compat.capi.onnxruntime_pybind11_state import InvalidArgument
>>> from sardonyx import SardonyxError
>>> issubclass(InvalidArgument, SardonyxError)
True
"""

from sardonyx.compat.binding import IOBinding as SessionIOBinding
from sardonyx.compat.choices import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtMemType,
)
from sardonyx.compat.devices import OrtDevice, OrtMemoryInfo
from sardonyx.compat.environment import (
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    register_execution_provider_library,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
    unregister_execution_provider_library,
)
from sardonyx.compat.exceptions import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004  (onnxruntime's name)
    RuntimeException,
)
from sardonyx.compat.left_out import LoraAdapter, ModelCompiler, OrtArenaCfg, SparseTensor
from sardonyx.compat.nodes import ModelMetadata, NodeArg
from sardonyx.compat.options import RunOptions, SessionOptions
from sardonyx.compat.providers import get_all_providers, get_available_providers, get_device
from sardonyx.compat.session import InferenceSession
from sardonyx.compat.values import OrtValue, OrtValueVector, copy_tensors


def get_default_session_options() -> SessionOptions:
    """Return new options with their defaults."""
    return SessionOptions()


__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "LoraAdapter",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_default_session_options",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]
