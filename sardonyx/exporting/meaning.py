"""What the values of a graph are in terms of its sizes, and whether that holds for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.errors import LimitExceeded, SardonyxError
from sardonyx.exporting.size_formulas import Formulas, NoFormula, Sizes, evaluated
from sardonyx.exporting.tracing import LARGEST_SHAPE, Traces
from sardonyx.graph.programs.whole_program import Pure
from sardonyx.graph.tracing.names import Named


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
