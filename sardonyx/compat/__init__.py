"""Onnxruntime's Python interface, on sardonyx: `import sardonyx.compat as ort`.

>>> import numpy as np
>>> import sardonyx.compat as ort
>>> session = ort.InferenceSession("examples/encoder.onnx", providers=["CPUExecutionProvider"])
>>> [y.shape for y in session.run(["y"], {"x": np.zeros((2, 5, 48), np.float32)})]
[(2, 5, 48)]
"""

from sardonyx.compat import capi
from sardonyx.compat.binding import IOBinding
from sardonyx.compat.choices import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceVendorId,
    OrtMemType,
)
from sardonyx.compat.devices import OrtDevice, OrtMemoryInfo
from sardonyx.compat.environment import (
    ORT_VERSION,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    register_execution_provider_library,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
    unregister_execution_provider_library,
)
from sardonyx.compat.left_out import (
    AdapterFormat,
    LoraAdapter,
    ModelCompiler,
    OrtArenaCfg,
    SparseTensor,
)
from sardonyx.compat.nodes import ModelMetadata, NodeArg
from sardonyx.compat.options import RunOptions, SessionOptions
from sardonyx.compat.providers import get_all_providers, get_available_providers, get_device
from sardonyx.compat.reference import ReferenceEvaluator
from sardonyx.compat.session import InferenceSession
from sardonyx.compat.values import OrtValue, OrtValueVector, copy_tensors

# Programs compare it with the releases of onnxruntime that they need.
__version__ = ORT_VERSION
version = __version__
package_name = "onnxruntime"
cuda_version = ""
# What onnxruntime's compiled module calls it.
SessionIOBinding = IOBinding

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "OrtValueVector",
    "ReferenceEvaluator",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
    "version",
]
