"""Operators that choose which of their subgraphs runs."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Body, Value, op


@op
def If(xp: Backend, cond: Array, *, then_branch: Body, else_branch: Body) -> Value:
    if cond.size != 1:
        raise ValueError(f"the condition has {cond.size} elements; it must have one")
    return xp.cond(cond, then_branch, else_branch)
