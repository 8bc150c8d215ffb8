"""One model traced for several sizes, and for which sizes what was found there holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import TooLarge
from sardonyx.errors import LimitExceeded, SardonyxError
from sardonyx.exporting.signature import Signature
from sardonyx.exporting.sizes import Formulas, NoFormula, Sizes, evaluated
from sardonyx.graph.calls import OpCall
from sardonyx.graph.params import Params
from sardonyx.graph.program import Named
from sardonyx.graph.pure import Pure, pure
from sardonyx.graph.structure import Node, Source
from sardonyx.graph.tape import Tape
from sardonyx.graph.trace import Tracer
from sardonyx.graph.values import Device, Static, Value

# What has more elements is data and no shape.
LARGEST_SHAPE = 16
# A size up to which it is looked whether the graph keeps its meaning.
FAR = 2039

# What one trace has left to the device, for others to do likewise: nodes, and which of their calls.
Left: TypeAlias = set[tuple[Node, int]]


class ShapeTracer(Tracer):
    """A tracer that leaves to the device what grows with the sizes of a call."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool, left: Left, decides: bool):
        super().__init__(source, tape, strict=strict)
        self._left = left
        self._decides = decides
        self._calls: Counter[Node] = Counter()

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        if not any(isinstance(array, Device) for array in arrays):
            self._calls[node] += 1
            place = node, self._calls[node]
            if self._decides and self._is_data(call, arrays):
                self._left.add(place)
            if place in self._left:
                return self.tape.emit(node, call, arrays)
        return super().emit(node, call, arrays)

    def _is_data(self, call: OpCall, arrays: Sequence[Static | Device]) -> bool:
        if not call.arguments:
            return False  # What is made of attributes alone is the same for all sizes.
        try:
            folded = self._fold(call, arrays)
        except TooLarge:
            return True
        own = [value for value in folded if isinstance(value, Static) and value not in arrays]
        return any(v.value.size > LARGEST_SHAPE and v.dtype != object for v in own)


@dataclass(frozen=True, eq=False)
class Traces:
    """The programs of one model for several sizes."""

    signature: Signature
    at: Sequence[Sizes]
    programs: Sequence[Pure]
    trace: Callable[[Sizes], Pure]

    @classmethod
    def of(
        cls,
        model: tuple[Source, Backend, Params],
        signature: Signature,
        at: Sequence[Sizes],
        *,
        strict: bool,
    ) -> Traces:
        """Traces at these points, of which the first decides what is data and what a shape."""
        left: Left = set()

        def trace(sizes: Sizes, *, decides: bool = False) -> Pure:
            tracer: Callable[..., Tracer] = Tracer
            if signature.symbols:
                tracer = partial(ShapeTracer, left=left, decides=decides)
            return pure(*model, signature.at(sizes), tracer=tracer, strict=strict)

        first, *others = at
        programs = [trace(first, decides=True), *map(trace, others)]
        return cls(signature, at, programs, trace)

    def limits(self) -> dict[str, tuple[int, int | None]]:
        """For each symbol the sizes for which the graph means what it meant at the points.

        Between the sizes that are tried it is taken to change no more than once.
        """
        meaning = Meaning.of(self)
        found: dict[str, tuple[int, int | None]] = {}
        large, small = self.at[0], self.at[min(1, len(self.at) - 1)]
        for name in self.signature.symbols:

            def holds(size: int, name: str = name) -> bool:
                return meaning.holds({**small, name: size})

            least = next((size for size in range(1, small[name]) if holds(size)), small[name])
            found[name] = least, _largest(holds, large[name])
        return found


def _largest(holds: Callable[[int], bool], near: int) -> int | None:
    """The last size that holds; None if none is known that does not."""
    far = FAR
    while far > near:
        try:
            return None if holds(far) else _last(holds, near, far)
        except LimitExceeded:
            far //= 2  # So large that values cannot be had at all.
    return None


def _last(holds: Callable[[int], bool], good: int, bad: int) -> int:
    """The last size that holds, on the way from one that does to one that does not."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


@dataclass(frozen=True, eq=False)
class Meaning:
    """What every value of the graph is in terms of the sizes: its shape, and its data if known."""

    trace: Callable[[Sizes], Pure]
    shapes: Mapping[str, tuple[Any, ...]]
    data: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, traces: Traces) -> Meaning:
        formulas = Formulas(traces.at, {name: _Symbol(name) for name in traces.signature.symbols})
        every = [program.names for program in traces.programs]
        shapes, data = {}, {}
        for name in every[0]:
            named = [names[name] for names in every if name in names]
            if len(named) < len(every):
                continue
            shapes[name] = _entries(formulas, [_shape(each) for each in named])
            data[name] = _entries(formulas, [_numbers(each) for each in named])
        return cls(traces.trace, shapes, data)

    def holds(self, sizes: Sizes) -> bool:
        """Whether every value of the graph is for these sizes what the formulas say."""
        try:
            names = self.trace(sizes).names
        except LimitExceeded:
            raise
        except SardonyxError:
            return False
        return all(
            name in names
            and _agree(shape, _shape(names[name]), sizes)
            and _agree(self.data[name], _numbers(names[name]), sizes)
            for name, shape in self.shapes.items()
        )


class _Symbol:
    """An expression as its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Any) -> _Symbol:
        return _Symbol(f"({self} + {other})")

    __radd__ = __add__

    def __mul__(self, other: Any) -> _Symbol:
        return _Symbol(f"({self} * {other})")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> _Symbol:
        return _Symbol(f"floordiv({self}, {other})")


def _shape(named: Named) -> tuple[int, ...]:
    return () if named.spec is None else named.spec.shape


def _numbers(named: Named) -> tuple[Any, ...]:
    """The data of a value that is known and may be a shape."""
    value = named.static
    if value is None or value.size > LARGEST_SHAPE or value.dtype == object:
        return ()
    return tuple(np.ravel(value).tolist())


def _entries(formulas: Formulas, found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Of each entry its formula, None where it has none."""
    if len({len(entries) for entries in found}) != 1:
        return ()
    return tuple(_entry(formulas, column) for column in zip(*found, strict=True))


def _entry(formulas: Formulas, values: Sequence[Any]) -> Any:
    if all(isinstance(value, int) for value in values):
        try:
            return formulas.of([int(value) for value in values])
        except NoFormula:
            return None
    return values[0] if len(set(values)) == 1 else None


def _agree(formulas: tuple[Any, ...], found: tuple[Any, ...], sizes: Sizes) -> bool:
    if len(found) != len(formulas):
        return not formulas
    return all(
        formula is None or value == (evaluated(formula, sizes) if _is_sized(formula) else formula)
        for formula, value in zip(formulas, found, strict=True)
    )


def _is_sized(formula: Any) -> bool:
    return isinstance(formula, _Symbol)
