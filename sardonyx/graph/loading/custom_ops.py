"""A caller's own operators for one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.graph.errors.translation import mark_user_op
from sardonyx.graph.ir import Source
from sardonyx.ops.definition import Definition, Op


def with_ops(source: Source, ops: Iterable[Op[Any]]) -> Source:
    """Return the model with these operators; they take precedence over others of that name."""
    if isinstance(ops, Op):
        raise InvalidInput(f"'ops' is one operator, {ops!r}: pass a list of operators.")
    if not isinstance(ops, Iterable):
        raise InvalidInput(
            f"'ops' is a {type(ops).__name__}: pass a list of operators defined with @sardonyx.op."
        )
    custom = dict(source.custom)
    for op in ops:
        if not isinstance(op, Op):
            raise InvalidInput(
                f"'ops' contains a {type(op).__name__}: turn a function into an operator with "
                "@sardonyx.op(domain='my.domain')."
            )
        custom[op.domain, op.name] = op
    return replace(source, custom=custom)


@dataclass(frozen=True, slots=True)
class Own:
    """The function of a user's own operator; it marks its errors as the user's."""

    function: Callable[..., Any]
    opset: int

    def __call__(self, *arguments: Any, **attributes: Any) -> Any:
        try:
            return self.function(*arguments, **attributes)
        except Exception as error:
            mark_user_op(error, self.opset)
            raise


def definition_of(op: Op[Any], opset: int) -> Definition:
    """Return the definition at this opset; that of a user's own operator marks its errors."""
    definition = op.at(opset)
    if op.is_of_the_package:
        return definition
    return replace(definition, function=Own(definition.function, opset))
