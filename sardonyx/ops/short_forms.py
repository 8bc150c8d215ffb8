"""Short forms for operators that are one function of one or two arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Op, op
from sardonyx.ops.precision import at_least_float32

Function = TypeVar("Function", bound=Callable[..., Array])


def unary(name: str, function: Callable[[Backend, Array], Array]) -> Op[Array]:
    """Return the operator `name`, computed by `function`, whose parameter has ONNX's name.

    >>> unary("Neg", lambda xp, X: xp.negative(X))
    <op ai.onnx::Neg>
    """
    return op(_annotated(name, function))


def unary_of_floats(name: str, function: Callable[[Backend, Array], Array]) -> Op[Array]:
    """Like `unary`; floats narrower than float32 are computed in float32."""
    return op(at_least_float32(_annotated(name, function)))


def binary(name: str, function: Callable[[Backend, Array, Array], Array]) -> Op[Array]:
    """Like `unary`, for a function of two arrays."""
    return op(_annotated(name, function))


def _annotated(name: str, function: Function) -> Function:
    """Give a lambda the name and the annotations by which `op` and recordings know a function."""
    xp, *arrays = inspect.signature(function).parameters
    function.__name__ = function.__qualname__ = name
    function.__annotations__ = {xp: Backend, **dict.fromkeys(arrays, Array), "return": Array}
    return function
