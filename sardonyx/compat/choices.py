"""The enumerations of the options, with onnxruntime's names and numbers."""

from __future__ import annotations

from enum import IntEnum


class Choice(IntEnum):
    """A number with a name; the text of one is its name, as in onnxruntime."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class GraphOptimizationLevel(Choice):
    """How far programs may differ from the steps of the graph; all but the first mean the same.

    >>> print(GraphOptimizationLevel.ORT_DISABLE_ALL)
    GraphOptimizationLevel.ORT_DISABLE_ALL
    """

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Choice):
    """Whether nodes run one after the other; without effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Choice):
    """The order of nodes that do not depend on each other; without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(Choice):
    """The kind of an allocator; without effect."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Choice):
    """The kind of memory that a device uses; without effect."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceVendorId(IntEnum):
    """The numbers of the makers of devices."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
