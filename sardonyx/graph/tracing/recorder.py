"""The protocol of recorders, which take each segment when the tape ends it."""

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
    # Results whose shapes depend on data; the rest of the program holds for their shapes only.
    measured: Sequence[Device] = ()
    # Whether it ends only because it is long, so that it may run with the next one.
    is_piece: bool = False


class Recorder(Protocol):
    """Builds a program from segments, and decides which values tracing can read."""

    @property
    def backend(self) -> Backend:
        """The backend that runs the program."""

    # The initializers that the program is traced with.
    weights: Weights
    registers: Registers
    # Whether the program runs under a caller's transformation, such as jit or vmap.
    is_inline: bool
    # Whether no step runs, so that the shapes of its results are inferred on every backend.
    only_infers: bool

    @property
    def knows_weights(self) -> bool:
        """Whether weights are the same at each call, so that tracing may read them."""

    @property
    def rewrites(self) -> bool:
        """Whether rewrites may change the steps."""

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """Return the array that steps take for a constant, whose digest is `key`."""

    def note_workaround(self, reason: str) -> None:
        """Count a step that runs in another way than most, for `stats`."""

    def allow_host(self) -> None:
        """Raise an error if the program cannot have steps that run on the host."""

    def close(self, segment: TracedSegment) -> None:
        """Take a segment, and run it if a call is being recorded."""

    def read(
        self, registers: Sequence[int], close: Callable[[], None]
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Return copies of the values in registers; the rest of the program holds for them only.

        `close` ends the open segment, if it has to run first.
        """
