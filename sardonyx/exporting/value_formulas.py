"""Formulas for the shapes and small data of a graph's values, and a check at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.errors import LimitExceeded, SardonyxError
from sardonyx.exporting.size_expressions import Sizes, evaluated
from sardonyx.exporting.size_formulas import Formulas, NoFormula
from sardonyx.exporting.symbols import is_symbolic, symbols
from sardonyx.exporting.tracing import LARGEST_SHAPE, Traces
from sardonyx.graph.programs.whole_program import Pure
from sardonyx.graph.tracing.names import Named


@dataclass(frozen=True, eq=False)
class ValueFormulas:
    """For each value of the graph its shape in terms of the sizes, and its data if static."""

    trace: Callable[[Sizes], Pure]
    shapes: Mapping[str, tuple[Any, ...]]
    data: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, traces: Traces) -> ValueFormulas:
        formulas = Formulas(traces.sizes, symbols(traces.signature.symbols, ()))
        all_names = [program.names for program in traces.programs]
        shapes, data = {}, {}
        for name in all_names[0]:
            named = [names[name] for names in all_names if name in names]
            if len(named) < len(all_names):
                continue
            shapes[name] = _entries(formulas, [_shape(each) for each in named])
            data[name] = _entries(formulas, [_numbers(each) for each in named])
        return cls(traces.trace, shapes, data)

    def holds(self, sizes: Sizes) -> bool:
        """Return whether the formulas are right for these sizes."""
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


def _shape(named: Named) -> tuple[int, ...]:
    return () if named.spec is None else named.spec.shape


def _numbers(named: Named) -> tuple[Any, ...]:
    """Return the elements of a static value that may be a shape."""
    value = named.static
    if value is None or value.size > LARGEST_SHAPE or value.dtype == object:
        return ()
    return tuple(np.ravel(value).tolist())


def _entries(formulas: Formulas, values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the formula of each entry; None if it has none."""
    if len(set(map(len, values))) != 1:
        return ()
    return tuple(_entry(formulas, column) for column in zip(*values, strict=True))


def _entry(formulas: Formulas, values: Sequence[Any]) -> Any:
    if all(isinstance(value, int) for value in values):
        try:
            return formulas.of([int(value) for value in values])
        except NoFormula:
            return None
    return values[0] if len(set(values)) == 1 else None


def _agree(formulas: tuple[Any, ...], values: tuple[Any, ...], sizes: Sizes) -> bool:
    if len(values) != len(formulas):
        return not formulas
    pairs = zip(formulas, values, strict=True)
    return all(formula is None or value == _value(formula, sizes) for formula, value in pairs)


def _value(formula: Any, sizes: Sizes) -> Any:
    return evaluated(formula, sizes) if is_symbolic(formula) else formula
