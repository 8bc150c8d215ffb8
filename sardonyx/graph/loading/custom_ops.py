"""Operators that a caller brings for one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.graph.errors.translation import mark_own
from sardonyx.graph.ir import Source
from sardonyx.ops.definition import Definition, Op


def with_ops(source: Source, ops: Iterable[Op[Any]]) -> Source:
    """The model in which these operators come before all others of their domains and names."""
    if isinstance(ops, Op):
        raise InvalidInput(f"The ops are one operator, {ops!r}: pass a list of them.")
    if not isinstance(ops, Iterable):
        raise InvalidInput(
            f"The ops are a {type(ops).__name__}: pass a list of operators made with @sardonyx.op."
        )
    custom = dict(source.custom)
    for op in ops:
        if not isinstance(op, Op):
            raise InvalidInput(
                f"Among the ops is a {type(op).__name__}: make an operator of a function with "
                "@sardonyx.op(domain='my.domain')."
            )
        custom[op.domain, op.name] = op
    return replace(source, custom=custom)


@dataclass(frozen=True, slots=True)
class Own:
    """The function of a user's own operator: what it raises is known to be the user's."""

    function: Callable[..., Any]
    opset: int

    def __call__(self, *arguments: Any, **attributes: Any) -> Any:
        try:
            return self.function(*arguments, **attributes)
        except Exception as error:
            mark_own(error, self.opset)
            raise


def definition_of(op: Op[Any], opset: int) -> Definition:
    """The definition in force; that of a user's own operator tells whose errors it raises."""
    definition = op.at(opset)
    if op.is_of_the_package:
        return definition
    return replace(definition, function=Own(definition.function, opset))
