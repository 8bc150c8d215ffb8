"""Walk the jaxprs of one program, traced for different sizes, side by side.

The jaxprs must have the same form: the same primitives in the same order, which read the same
values. Sizes, constants and parameters may differ; a visitor decides what a difference means.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from sardonyx.backends.padding.axes import Different

T = TypeVar("T")
V = TypeVar("V")

# Primitives that only call a jaxpr, and the parameter that holds it.
_CALLS: Mapping[str, str] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}


class Visitor(Protocol[V]):
    """Computes values, each of which stands for one variable of every jaxpr."""

    def constant(self, values: Sequence[Any]) -> V:
        """The value for a constant, from the array that each jaxpr has for it."""

    def literal(self, literals: Sequence[Any]) -> V:
        """The value for an operand that is a `Literal` in every jaxpr."""
        return self.constant([literal.val for literal in literals])

    def equation(self, equations: Sequence[Any], operands: Sequence[V]) -> Sequence[V]:
        """The values for the results of an equation, which each jaxpr has in its own version."""


def walk(jaxprs: Sequence[Any], arguments: Sequence[V], visitor: Visitor[V]) -> list[V]:
    """Return the values for the results of the jaxprs.

    Visits constants first, then the equations in order, including those of called functions.
    Raises `Different` if the jaxprs do not have the same form.
    """
    bodies = list(map(_open, jaxprs))
    values: Counterparts[V] = Counterparts(len(bodies))
    values.bind_all((body.invars for body in bodies), arguments)
    constants = columns(getattr(jaxpr, "consts", ()) for jaxpr in jaxprs)
    values.bind_all((body.constvars for body in bodies), map(visitor.constant, constants))
    for equations in columns(body.eqns for body in bodies):
        _require_same_primitive(equations)
        atoms = columns(equation.invars for equation in equations)
        operands = [_read(column, values, visitor) for column in atoms]
        results = _visit(equations, operands, visitor)
        values.bind_all((equation.outvars for equation in equations), results)
    outputs = columns(body.outvars for body in bodies)
    return [_read(column, values, visitor) for column in outputs]


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _visit(equations: Sequence[Any], operands: Sequence[V], visitor: Visitor[V]) -> Sequence[V]:
    name = _CALLS.get(equations[0].primitive.name)
    if name is None:
        return visitor.equation(equations, operands)
    return walk([equation.params[name] for equation in equations], operands, visitor)


def _read(atoms: Sequence[Any], values: Counterparts[V], visitor: Visitor[V]) -> V:
    literal = [hasattr(atom, "val") for atom in atoms]
    if all(literal):
        return visitor.literal(atoms)
    if any(literal):
        raise Different("a value is a constant for one size only")
    return values.read(atoms)


def _require_same_primitive(equations: Sequence[Any]) -> None:
    first, *others = equations
    for other in others:
        if other.primitive is not first.primitive or other.params.keys() != first.params.keys():
            raise Different("it is computed in another way for another size")


def columns(rows: Iterable[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """Transpose lists of which each program has one; raises `Different` if their lengths differ.

    >>> list(columns(["ab", "xy"]))
    [('a', 'x'), ('b', 'y')]
    """
    rows = list(rows)
    if len(set(map(len, rows))) > 1:
        raise Different("it is computed in another way for another size")
    return zip(*rows, strict=True)


class Counterparts(Generic[V]):
    """Which variables of several programs stand for the same value, and that value.

    >>> values = Counterparts(2)
    >>> values.bind(("x", "a"), 1)
    >>> values.read(("x", "a"))
    1
    """

    def __init__(self, programs: int) -> None:
        self._numbers: list[dict[Hashable, int]] = [{} for _ in range(programs)]
        self._values: list[V] = []

    def bind(self, variables: Sequence[Hashable], value: V) -> None:
        """Let one variable of each program stand for this value."""
        for numbers, variable in zip(self._numbers, variables, strict=True):
            numbers[variable] = len(self._values)
        self._values.append(value)

    def bind_all(self, rows: Iterable[Sequence[Hashable]], values: Iterable[V]) -> None:
        """Bind the variables of each program, in order, to the values."""
        for variables, value in zip(columns(rows), values, strict=True):
            self.bind(variables, value)

    def read(self, variables: Sequence[Hashable]) -> V:
        """The value of one variable of each program; `Different` if they stand for several."""
        pairs = zip(self._numbers, variables, strict=True)
        number, *others = {numbers.get(variable) for numbers, variable in pairs}
        if others or number is None:
            raise Different("it reads other values for another size")
        return self._values[number]


# -- parameters -----------------------------------------------------------------------------------


def require_same(equations: Sequence[Any], *names: str) -> None:
    """Raise `Different` unless these parameters are the same in all equations."""
    for name in names:
        if not all_same([equation.params[name] for equation in equations]):
            primitive = equations[0].primitive.name
            raise Different(f"{primitive} has another {name} for another size")


def all_same(values: Sequence[Any]) -> bool:
    """Whether parameters are the same, functions and arrays within them included.

    >>> all_same([(1, 2.0), (1, 2.0)]), all_same([(1, 2.0), (1, -2.0)])
    (True, False)
    """
    first = values[0]
    if all(hasattr(value, "eqns") for value in values):
        return _same_jaxprs(values)
    if all(isinstance(value, (tuple, list)) for value in values):
        same_length = len(set(map(len, values))) == 1
        return same_length and all(map(all_same, zip(*values, strict=True)))
    if isinstance(first, (np.ndarray, float)):
        return same_bits(values)
    return all(value is first or bool(value == first) for value in values)


def same_bits(values: Sequence[Any]) -> bool:
    """Whether arrays are the same to the last bit.

    >>> same_bits([np.nan, np.nan]), same_bits([0.0, -0.0])
    (True, False)
    """
    arrays = map(np.asarray, values)
    return len({(array.dtype, array.shape, array.tobytes()) for array in arrays}) == 1


def _same_jaxprs(jaxprs: Sequence[Any]) -> bool:
    arguments = [[variable.aval for variable in _open(each).invars] for each in jaxprs]
    if not all_same(arguments):
        return False
    try:
        walk(jaxprs, arguments[0], _RequireSame())
    except Different:
        return False
    return True


class _RequireSame(Visitor[Any]):
    """Visits jaxprs that must be the same in everything; its values are types."""

    def constant(self, values: Sequence[Any]) -> Any:
        if not same_bits(values):
            raise Different("a constant differs between sizes")

    def equation(self, equations: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
        require_same(equations, *equations[0].params)
        results = [[variable.aval for variable in each.outvars] for each in equations]
        if not all_same(results):
            raise Different("a result has another type for another size")
        return results[0]


# -- loops ----------------------------------------------------------------------------------------


def carried_by_scan(equations: Sequence[Any]) -> slice:
    """Which operands of a `scan` are its carry; constants precede it, scanned arrays follow.

    JAX stores their counts differently in each version. Here they follow from the ranks: a scanned
    array has one axis more than the body's argument, a stacked result one more than its result.
    """
    carry, *others = {_carried(equation) for equation in equations}
    if others:
        raise Different("its loop carries other values for another size")
    return slice(*carry)


def _carried(equation: Any) -> tuple[int, int]:
    body = _open(equation.params["jaxpr"])
    stop = len(equation.invars) - _count_of_other_rank(equation.invars, body.invars)
    stacked = _count_of_other_rank(equation.outvars, body.outvars)
    return stop - (len(equation.outvars) - stacked), stop


def _count_of_other_rank(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    return sum(a.aval.ndim != b.aval.ndim for a, b in zip(outer, inner, strict=True))
