"""Records of compilations: plain data, which processes can exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# How a compilation ended, from the best to the worst.
COMPILED, REFUSED, FAILED, TIMED_OUT, ABORTED = OUTCOMES = (
    "compiled",
    # By sardonyx with a sentence, or because it needs more memory than the device has.
    "refused",
    # An error of JAX or of the compiler.
    "failed",
    "timed out",
    # The compiler ended its process.
    "aborted",
)


# XLA's instructions that only copy; on TPUs the later two run beside other kernels.
_COPIES = frozenset({"copy", "copy-start", "slice-start"})


@dataclass(frozen=True)
class Collective:
    """One kind of communication between the devices: how often a call does it, and its bytes."""

    kind: str
    count: int
    # Of the results on one device.
    nbytes: int


@dataclass(frozen=True)
class Facts:
    """What the compiler says of one program. Loops count once, except in `collectives`."""

    # What the device is given to run, by XLA's names of instructions: "fusion", "custom-call" ...
    kinds: Mapping[str, int]
    loops: int
    # Arithmetic operations of the program as it was written, on all devices, and of the optimised
    # one on each device, without those of library calls.
    operations: float
    optimised_operations: float
    # Bytes that the kernels read and write; on TPUs those in the chip's own memory too.
    accessed: float
    # Bytes of arguments and results that cross the device's memory at least once: of a table that
    # is only looked up, the rows.
    least_moved: int
    # Bytes of what the kernels write, and of the padding beside it in a TPU's tiles by sizes, such
    # as "3 as 8".
    results: int
    padding: Mapping[str, int]
    # Bytes in the device's memory.
    arguments: int
    outputs: int
    donated: int
    temporaries: int
    code: int
    # Bytes of the arguments without the padding of their layouts.
    plain_arguments: int
    custom_calls: Mapping[str, int]
    # Custom calls into the host, and transfers from and to it.
    host_calls: tuple[str, ...]
    # Arrays of 64-bit types that the program computes, by type. XLA:TPU divides them into pairs of
    # 32 bits, which leaves the custom calls X64Combine and X64Split at the program's edges.
    wide_values: Mapping[str, int]
    collectives: tuple[Collective, ...]
    # Operations of matrix products and convolutions by type, such as "float32 highest", on all
    # devices. Those of a scan count as often as it runs.
    products: Mapping[str, float]
    # The compiler's own estimate for the fusions of a TPU; 0 if it has none.
    cycles: int

    @property
    def kernels(self) -> int:
        """The number of all kernels."""
        return sum(self.kinds.values())

    @property
    def fusions(self) -> int:
        """The number of kernels that XLA wrote for several operations."""
        return self.kinds.get("fusion", 0)

    @property
    def library_calls(self) -> int:
        """The number of kernels of libraries, such as cuDNN's and cuBLAS's."""
        return self.kinds.get("custom-call", 0)

    @property
    def copies(self) -> int:
        """The number of copies."""
        return sum(count for kind, count in self.kinds.items() if kind in _COPIES)

    @property
    def peak(self) -> int:
        """The bytes in the device's memory while it runs."""
        held = self.arguments + self.outputs - self.donated
        return held + self.temporaries + self.code


@dataclass(frozen=True)
class Compilation:
    """How the compilation of one program ended, and what the compiler says of it."""

    title: str
    outcome: str
    # Why it was not compiled, or only with other options than usual.
    reason: str = ""
    seconds: float = 0.0
    facts: Facts | None = None
    # The optimised program, if it was asked for.
    text: str = ""

    @property
    def is_unread(self) -> bool:
        """Whether it was compiled, and nothing is known of the program."""
        return self.outcome == COMPILED and self.facts is None


@dataclass(frozen=True)
class HostSteps:
    """Steps of a model that run on the host, between its programs, and why."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Record:
    """How one job ended: its programs in order, and the steps that run on the host."""

    target: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    programs: tuple[Compilation, ...] = ()
    host: tuple[HostSteps, ...] = ()
    # What one should know beside, such as how a mesh divides the weights.
    notes: tuple[str, ...] = field(default=())

    @property
    def is_compiled(self) -> bool:
        """Whether all programs were compiled."""
        return self.outcome == COMPILED


def worst(outcomes: Sequence[str]) -> str:
    """Return the worst of some outcomes; without any nothing went wrong."""
    return max(outcomes, key=OUTCOMES.index, default=COMPILED)
