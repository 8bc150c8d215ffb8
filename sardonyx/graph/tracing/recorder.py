"""What a tape writes for: a recorder takes each segment when the tape ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Step
from sardonyx.graph.values.kinds import Device, Value
from sardonyx.graph.values.params import Weights


@dataclass(frozen=True, eq=False, slots=True)
class TracedSegment:
    """The steps of a segment as tracing wrote them, before rewrites."""

    steps: Sequence[Step]
    # The registers that are read after the segment.
    results: Sequence[int]
    on_host: bool = False
    # The model's outputs, in the last segment.
    outputs: tuple[Value, ...] | None = None
    # Results whose shapes depend on data; the rest of the program is for their shapes alone.
    measured: Sequence[Device] = ()


class Recorder(Protocol):
    """Makes a program of segments, and knows what may be read on the way."""

    @property
    def backend(self) -> Backend:
        """Where the program runs."""

    @property
    def weights(self) -> Weights:
        """The initializers for which it is traced."""

    @property
    def registers(self) -> Registers:
        """The program's registers."""

    @property
    def is_inline(self) -> bool:
        """Whether the program runs under a caller's transformation, such as jit or vmap."""

    @property
    def rewrites(self) -> bool:
        """Whether rewrites may change the steps."""

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """The array that steps take in place of a constant, whose digest is `key`."""

    def allow_host(self) -> None:
        """Raise an error where the program cannot have steps that run on the host."""

    def close(self, segment: TracedSegment) -> None:
        """Take a segment; where a call is being recorded, run it."""

    def read(
        self, registers: Sequence[int], close: Callable[[], None]
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Copies of the values in registers, for which the rest of the program is traced.

        `close` ends the open segment, where it has to run first.
        """
