"""`OrtDevice`: where the memory of a value is; and the backends of devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.compat.choices import OrtAllocatorType, OrtDeviceVendorId, OrtMemType
from sardonyx.compat.exceptions import RefusedCall, WrongType
from sardonyx.errors import BackendUnavailable, InvalidInput

CPU, GPU, FPGA, NPU, DML = range(5)
# A number of our own: onnxruntime has none for TPUs.
TPU = 16


class _Kind(NamedTuple):
    """A name of devices: its number, its maker, and the device of sardonyx that it means."""

    number: int
    vendor: OrtDeviceVendorId
    device: str | None


_KINDS = {
    "cpu": _Kind(CPU, OrtDeviceVendorId.NONE, "cpu"),
    "cuda": _Kind(GPU, OrtDeviceVendorId.NVIDIA, "cuda"),
    "gpu": _Kind(GPU, OrtDeviceVendorId.NONE, "cuda"),
    "tpu": _Kind(TPU, OrtDeviceVendorId.NONE, "tpu"),
    "npu": _Kind(NPU, OrtDeviceVendorId.NONE, None),
    "cann": _Kind(NPU, OrtDeviceVendorId.HUAWEI, None),
    "dml": _Kind(DML, OrtDeviceVendorId.MICROSOFT, None),
    "webgpu": _Kind(GPU, OrtDeviceVendorId.NONE, None),
}
# DLPack's numbers of devices, by the names of platforms.
DLPACK = {"cpu": 1, "cuda": 2}


class OrtDevice:
    """A device of a kind, by its index.

    >>> device = OrtDevice.make("cuda", 1)
    >>> device.device_type(), device.device_id()
    (1, 1)
    """

    def __init__(self, device: OrtDevice | int, memory: int = 0, *numbers: int) -> None:
        self._numbers: tuple[int, int, int, int]
        if isinstance(device, OrtDevice):
            self._numbers = device._numbers
            return
        vendor, index = (0, *numbers)[-2:] if numbers else (0, 0)
        self._numbers = (int(device), int(memory), int(vendor), int(index))

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return a device by the name of its kind: "cpu", "cuda", "gpu" or "tpu"."""
        kind = _kind(ort_device_name)
        vendor = kind.vendor if vendor_id < 0 else vendor_id
        return OrtDevice(kind.number, 0, vendor, check_index(device_id))

    def device_type(self) -> int:
        """Return the number of the kind."""
        return self._numbers[0]

    def device_mem_type(self) -> int:
        """Return the number of the kind of memory; 0 is the device's own."""
        return self._numbers[1]

    mem_type = device_mem_type

    def device_vendor_id(self) -> int:
        """Return the number of the maker."""
        return self._numbers[2]

    vendor_id = device_vendor_id

    def device_id(self) -> int:
        """Return the index among the devices of this kind."""
        return self._numbers[3]

    def _get_c_device(self) -> OrtDevice:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        kind, _, _, index = self._numbers
        return f"<OrtDevice {name_of(kind)}:{index}>"

    @staticmethod
    def cpu() -> int:
        """Return the number of CPUs as a kind."""
        return CPU

    @staticmethod
    def cuda() -> int:
        """Return the number of NVIDIA's GPUs as a kind."""
        return GPU

    gpu = cuda
    webgpu = cuda

    @staticmethod
    def fpga() -> int:
        """Return the number of FPGAs as a kind."""
        return FPGA

    @staticmethod
    def npu() -> int:
        """Return the number of NPUs as a kind."""
        return NPU

    cann = npu

    @staticmethod
    def dml() -> int:
        """Return the number of DirectML's devices as a kind."""
        return DML

    @staticmethod
    def default_memory() -> int:
        """Return the number of a device's own memory."""
        return 0


class OrtMemoryInfo:
    """The memory in which a session has a value."""

    def __init__(
        self,
        name: str,
        allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        device_id: int = 0,
        mem_type: OrtMemType = OrtMemType.DEFAULT,
    ) -> None:
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = 0
        self.device_vendor_id = 0


def name_of(number: int) -> str:
    """Return the name of a kind of device by its number.

    >>> name_of(1)
    'cuda'
    """
    return next((name for name, kind in _KINDS.items() if kind.number == number), "other")


def backend_on(device_type: str, device_id: int) -> Backend | None:
    """Return the backend with memory on a device; None for the CPU, where NumPy has it."""
    kind = _kind(device_type)
    index = check_index(device_id)
    if kind.number == CPU:
        return None
    if kind.device is None:
        raise RefusedCall(
            f"Sardonyx has no memory on devices of the kind '{device_type}': use 'cpu', 'cuda' or "
            "'tpu'."
        )
    try:
        return find(None, f"{kind.device}:{index}")
    except BackendUnavailable as error:
        raise RefusedCall(f"{str(error).rstrip('.')}.") from error


def check_index(value: Any) -> int:
    """Return the index of a device, which is a whole number of at least 0.

    >>> check_index(1)
    1
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidInput(f"The index of a device is {value!r:.100}: pass 0, 1, ...")
    return int(value)


def _kind(name: Any) -> _Kind:
    if not isinstance(name, str):
        raise WrongType(f"The kind of a device is {name!r:.100}: pass a string such as 'cpu'.")
    if name not in _KINDS:
        raise InvalidInput(
            f"There is no kind of device {name!r:.100}: pass one of {', '.join(map(repr, _KINDS))}."
        )
    return _KINDS[name]
