"""An op with everything but its arrays filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend, Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.binding import Argument
from sardonyx.graph.program import Block
from sardonyx.graph.values import Device, Static, digest
from sardonyx.ops.definition import Need

# Where an array goes that is only known when the program runs.
HOLE = object()


@dataclass(frozen=True, eq=False, slots=True)
class OpCall:
    """A function of the backend and of arrays: what a step of a program calls."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attributes: Mapping[str, Any]
    dtypes: tuple[np.dtype[Any] | None, ...]

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        arguments: Sequence[Argument],
        attributes: Mapping[str, Any],
        dtypes: Sequence[np.dtype[Any] | None],
    ) -> OpCall:
        """Put what is known in its place, and leave holes for the arrays."""
        return cls(function, tuple(_given(a) for a in arguments), attributes, tuple(dtypes))

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        results = self.unrounded(xp, arrays)[: len(self.dtypes)]
        return tuple(self.rounded(xp, i, result) for i, result in enumerate(results))

    def unrounded(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The op's results as it returns them."""
        given = iter(arrays)
        arguments = [next(given) if a is HOLE else _native(xp, a) for a in self.arguments]
        results = self.function(xp, *arguments, **self.attributes)
        return results if isinstance(results, tuple) else (results,)

    def rounded(self, xp: Backend, index: int, result: Any) -> Any:
        """A result in the dtype the standard gives it, where an op computed in a wider one."""
        if not hasattr(result, "ndim") or isinstance(result, np.generic):
            result = HOST.asarray(result)  # NumPy hands out scalars for arrays of rank 0.
        dtype = self.dtypes[index] if index < len(self.dtypes) else None
        if dtype is None or xp.numpy_dtype(result.dtype) == dtype:
            return result
        return xp.astype(result, xp.dtype(dtype))

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Equal for two calls that do the same to equal arrays; None where that cannot be told."""
        try:
            known = tuple(_hashable(v) for v in (*self.arguments, *self.attributes.values()))
            hash(known)
        except TypeError:
            return None
        return self.function, known, tuple(self.attributes), self.dtypes


@dataclass(frozen=True, eq=False, slots=True)
class ControlCall:
    """An op that runs subgraphs: its own arrays come first, then those the subgraphs capture."""

    call: OpCall
    blocks: Mapping[str, Block]
    captures: tuple[int, ...]

    key = None

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        own = len(arrays) - len(self.captures)
        frame = dict(zip(self.captures, arrays[own:], strict=True))
        bodies = {name: partial(block.run, xp, frame) for name, block in self.blocks.items()}
        function = partial(self.call.function, **bodies)
        call = OpCall(function, self.call.arguments, self.call.attributes, self.call.dtypes)
        return call(xp, arrays[:own])


def makes_strings(call: OpCall | ControlCall) -> bool:
    """Whether the call is told to make strings, which only the host can hold."""
    if isinstance(call, ControlCall):
        return False
    told = [*call.attributes.values(), *(a.dtype for a in call.arguments if isinstance(a, Spec))]
    return any(isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in told)


class Probe:
    """A call that remembers which of its results are the very arguments they came from."""

    def __init__(self, call: OpCall | ControlCall, xp: Backend) -> None:
        self.call = call
        self.xp = xp
        self.same: list[int | None] = []

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        results = self.call(self.xp, arrays)
        self.same = [next((i for i, a in enumerate(arrays) if a is r), None) for r in results]
        return results


def _given(argument: Argument) -> Any:
    parameter, value = argument.parameter, argument.value
    if parameter.need is Need.VALUE:
        return value
    if value is None:
        return parameter.default
    if parameter.need is Need.SHAPED:
        return Spec(value.shape, value.dtype) if isinstance(value, (Static, Device)) else value
    if parameter.need is Need.STATIC and isinstance(value, Static):
        return parameter.convert(value.value)
    if isinstance(value, (Static, Device)):
        return HOLE
    raise TypeError(f"'{parameter.name}' takes an array, not a sequence")


def _native(xp: Backend, argument: Any) -> Any:
    """A shape and dtype in the library's own terms, as an array of its would tell them."""
    if isinstance(argument, Spec):
        return Spec(argument.shape, xp.dtype(argument.dtype))
    return argument


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return digest(value)
    if isinstance(value, (Static, Device)):
        return value.shape, value.dtype
    return value
