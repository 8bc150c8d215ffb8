"""One model traced for several sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import TooLarge
from sardonyx.exporting.signature import Signature
from sardonyx.exporting.size_expressions import Sizes
from sardonyx.graph.ir import Node, Source
from sardonyx.graph.programs.whole_program import Pure, pure
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value
from sardonyx.graph.values.params import WeightStore

# Larger integer arrays are data, not shapes.
LARGEST_SHAPE = 16

# Calls that the first trace leaves to the device, and the others then too: a node and a number.
Left: TypeAlias = set[tuple[Node, int]]


class ShapeTracer(Tracer):
    """Leaves results that grow with the sizes to the device, although they could be folded."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool, left: Left, decides: bool):
        super().__init__(source, tape, strict=strict)
        self._left = left
        self._decides = decides
        self._calls: Counter[Node] = Counter()

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        if not any(isinstance(array, Device) for array in arrays):
            self._calls[node] += 1
            numbered = node, self._calls[node]
            if self._decides and self._is_data(call, arrays):
                self._left.add(numbered)
            if numbered in self._left:
                return self.tape.emit(node, call, arrays)
        return super().emit(node, call, arrays)

    def _is_data(self, call: OpCall, arrays: Sequence[Static | Device]) -> bool:
        if not call.arguments:
            return False  # Attributes alone give the same result for all sizes.
        try:
            folded = self.fold(call, arrays)
        except TooLarge:
            return True
        computed = [value for value in folded if isinstance(value, Static) and value not in arrays]
        return any(v.value.size > LARGEST_SHAPE and v.dtype != object for v in computed)


@dataclass(frozen=True, eq=False)
class Traces:
    """The programs of one model for several sizes."""

    signature: Signature
    sizes: Sequence[Sizes]
    programs: Sequence[Pure]
    trace: Callable[[Sizes], Pure]

    def extended(self, more: Sequence[Sizes]) -> Traces:
        """Return these traces, and those for more sizes."""
        programs = [*self.programs, *map(self.trace, more)]
        return Traces(self.signature, [*self.sizes, *more], programs, self.trace)

    @classmethod
    def of(
        cls,
        model: tuple[Source, Backend, WeightStore],
        signature: Signature,
        probed: Sequence[Sizes],
        *,
        strict: bool,
        kind: Callable[..., ShapeTracer] = ShapeTracer,
    ) -> Traces:
        """Trace for these sizes. The first trace decides which values are data, not shapes."""
        left: Left = set()

        def trace(sizes: Sizes, *, decides: bool = False) -> Pure:
            tracer: Callable[..., Tracer] = Tracer
            if signature.symbols:
                tracer = partial(kind, left=left, decides=decides)
            return pure(*model, signature.at(sizes), tracer=tracer, strict=strict)

        first, *others = probed
        programs = [trace(first, decides=True), *map(trace, others)]
        return cls(signature, probed, programs, trace)
