"""The classes that onnxruntime defines in its module of this name."""

from sardonyx.compat.binding import IOBinding
from sardonyx.compat.choices import OrtDeviceVendorId
from sardonyx.compat.devices import OrtDevice
from sardonyx.compat.left_out import AdapterFormat, ModelCompiler, SparseTensor
from sardonyx.compat.session import InferenceSession
from sardonyx.compat.values import OrtValue, copy_tensors

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "SparseTensor",
    "copy_tensors",
]
