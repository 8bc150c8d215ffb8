"""Operators that a caller brings for one model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.graph.structure import Source
from sardonyx.ops.definition import Op


def with_ops(source: Source, ops: Iterable[Op[Any]]) -> Source:
    """The model in which these operators come before all others of their domains and names."""
    if isinstance(ops, Op):
        raise InvalidInput(f"The ops are one operator, {ops!r}: pass a list of them.")
    custom = dict(source.custom)
    for op in ops:
        if not isinstance(op, Op):
            raise InvalidInput(
                f"Among the ops is a {type(op).__name__}: make an operator of a function with "
                "@sardonyx.op(domain='my.domain')."
            )
        custom[op.domain, op.name] = op
    return replace(source, custom=custom)
