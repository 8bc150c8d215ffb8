"""The bytes of its arguments that a program must read: of a table that it looks up, some rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Primitives that read as many elements of their first operand as they return.
_LOOKUPS = ("gather", "dynamic_slice", "slice")
# Primitives that call one jaxpr with all of their operands.
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2")


def parts_read(jaxpr: Any) -> list[float]:
    """Return for each argument the part of it that must be read, between 0 and 1."""
    bare: Any = _bare(jaxpr)
    elements = _elements_read(bare)
    return [
        min(1.0, elements.get(variable, 0) / max(1, variable.aval.size)) for variable in bare.invars
    ]


def _elements_read(jaxpr: Any) -> Mapping[Any, int]:
    """Count the elements that are read of each variable, some more than once."""
    read: dict[Any, int] = {}
    for equation in jaxpr.eqns:
        for variable, count in zip(equation.invars, _counts(equation), strict=True):
            if not isinstance(variable, Literal):
                read[variable] = read.get(variable, 0) + count
    for variable in jaxpr.outvars:
        if not isinstance(variable, Literal):
            read[variable] = variable.aval.size
    return read


def _counts(equation: Any) -> Sequence[int]:
    sizes = [getattr(variable.aval, "size", 0) for variable in equation.invars]
    name = equation.primitive.name
    if name in _LOOKUPS:
        return [sum(result.aval.size for result in equation.outvars), *sizes[1:]]
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if name in _CALLS and isinstance(inner, (Jaxpr, ClosedJaxpr)):
        bare = _bare(inner)
        if len(bare.invars) == len(sizes):
            read = _elements_read(bare)
            return [read.get(variable, 0) for variable in bare.invars]
    return sizes


def _bare(jaxpr: Any) -> Jaxpr:
    bare: Jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    return bare
