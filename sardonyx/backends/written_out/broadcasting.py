"""Broadcasts weights and constants ahead of the calls that would do it each time.

NumPy's loop over arrays of one shape starts in half the time of its loop over several shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.backends.written_out.notes import NotedCall, Place
from sardonyx.backends.written_out.prices import SAVED_WITHOUT_BROADCAST, is_of_one_shape

# Elements of a result. With more, the start of the loop is a small part of the time.
MOST_ELEMENTS = 4096

Shape = tuple[int, ...]


def with_broadcast_ahead(
    ahead: Sequence[NotedCall],
    each: Sequence[NotedCall],
    fixed: Mapping[Place, Shape],
    new_place: Callable[[], Place],
) -> tuple[list[NotedCall], list[NotedCall]]:
    """Return further calls ahead, and the calls of each run with the results of these.

    `fixed` has the shapes of weights and constants.
    """
    known = {**fixed, **{c.result: c.shape for c in ahead if c.shape is not None}}
    shapes = {**known, **{c.result: c.shape for c in each if c.shape is not None}}
    added: dict[tuple[Place, Shape], NotedCall] = {}

    def shape_of(operand: Any) -> Shape:
        return shapes.get(operand, ()) if isinstance(operand, Place) else np.shape(operand)

    def wide(operand: Any, shape: Shape) -> Any:
        if shape_of(operand) in ((), shape):
            return operand
        if isinstance(operand, np.ndarray):
            return _broadcast(operand, shape)
        if (operand, shape) not in added:
            call = NotedCall(_broadcast, (operand, shape), {}, new_place(), None, 0.0, shape)
            added[operand, shape] = call
        return added[operand, shape].result

    def is_computed(operand: Any) -> bool:
        return isinstance(operand, Place) and operand not in known

    def widened(call: NotedCall) -> NotedCall:
        shape = call.shape
        is_of_elements = isinstance(call.function, np.ufunc) and call.function.signature is None
        if not is_of_elements or shape is None or math.prod(shape) > MOST_ELEMENTS:
            return call
        operands = list(map(shape_of, call.arguments))
        computed = [shape_of(a) for a in call.arguments if is_computed(a)]
        if is_of_one_shape(operands, shape) or not is_of_one_shape(computed, shape):
            return call
        arguments = tuple(wide(argument, shape) for argument in call.arguments)
        return replace(call, arguments=arguments, price=call.price - SAVED_WITHOUT_BROADCAST)

    # The calls of `added` are complete only now.
    calls = list(map(widened, each))
    return list(added.values()), calls


def _broadcast(array: Any, shape: Shape) -> Any:
    return np.broadcast_to(array, shape).copy()
