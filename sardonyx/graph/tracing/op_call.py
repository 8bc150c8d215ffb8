"""An op with everything but its arrays filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.backends import random
from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Constants
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.tracing.binding import Argument
from sardonyx.graph.values.kinds import Device, Static, Value, digest, exact
from sardonyx.ops.definition import Arrays, Definition, Map, Need, Parameter

# Where an array goes that is only known when the program runs.
HOLE = object()


@dataclass(frozen=True, slots=True)
class Holes:
    """Where a sequence of arrays goes."""

    count: int


@dataclass(frozen=True, eq=False, slots=True)
class OpCall:
    """A function of the backend and of arrays: what a step of a program calls."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attributes: Mapping[str, Any]
    # What the standard says the results are, where it says so.
    dtypes: tuple[np.dtype[Any] | None, ...]
    outputs: int | None = None
    makes_sequence: bool = False
    is_unsized: bool = False
    # Whether the result is only another look at the first array.
    is_view: bool = False

    @classmethod
    def of(
        cls,
        definition: Definition,
        arguments: Sequence[Argument],
        attributes: Mapping[str, Any],
        dtypes: Sequence[np.dtype[Any] | None],
    ) -> OpCall:
        """Put what is known in its place, and leave holes for the arrays."""
        return cls(
            definition.function,
            tuple(_given(a) for a in arguments),
            attributes,
            tuple(dtypes),
            outputs=len(dtypes),
            makes_sequence=definition.makes_sequence,
            is_unsized=definition.is_unsized,
            is_view=definition.is_view,
        )

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        results = self.unrounded(xp, arrays)
        if not self.makes_sequence:
            results = results[: self.outputs]
        return tuple(self.rounded(xp, i, result) for i, result in enumerate(results))

    def unrounded(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The op's results as it returns them."""
        given = iter(arrays)
        arguments = [_filled(xp, argument, given) for argument in self.arguments]
        results = self.function(xp, *arguments, **self.attributes)
        several = self.makes_sequence or isinstance(results, tuple)
        return tuple(results) if several else (results,)

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
        """Equal for two calls that do the same to equal arrays; None if that is unknown."""
        try:
            known = tuple(_key_of(v) for v in (*self.arguments, *self.attributes.values()))
            hash(known)
        except TypeError:
            return None
        return exact(self.function), known, tuple(self.attributes), self.dtypes


@dataclass(frozen=True, slots=True)
class Drawing:
    """An op that draws at random, given a key of its own: the call's, and what tells it apart.

    The key comes last among the arguments, with the numbers of the iterations it is drawn in.
    """

    function: Callable[..., Any]
    number: int
    nested: int

    def __call__(self, xp: Backend, *arguments: Any, **attributes: Any) -> Any:
        own = len(arguments) - self.nested - 1
        key, *iterations = arguments[own:]
        for part in (self.number, *iterations):
            key = random.fold_in(xp, key, part)
        return self.function(xp, *arguments[:own], key=key, **attributes)


def makes_strings(call: OpCall) -> bool:
    """Whether an attribute or a dtype asks for strings, which only the host can hold."""
    requested = [
        *call.attributes.values(),
        *(a.dtype for a in call.arguments if isinstance(a, Spec)),
    ]
    return any(isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in requested)


class Probe:
    """A call that remembers which of its results are the very arguments they came from."""

    def __init__(self, call: Callable[..., Any], xp: Backend) -> None:
        self.call = call
        self.xp = xp
        self.same: list[int | None] = []

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = self.call(self.xp, arrays)
        self.same = [next((i for i, a in enumerate(arrays) if a is r), None) for r in results]
        return results

    def looking(
        self, arrays: Sequence[Any], values: Sequence[np.ndarray[Any, Any] | None]
    ) -> tuple[tuple[Any, ...], list[int]]:
        """The results, and the numbers of the arguments whose data must meet a condition.

        The values that are known must meet it now.
        """
        pairs = zip(arrays, values, strict=True)
        constants = Constants({id(array): value for array, value in pairs if value is not None})
        unseeing, self.xp = self.xp, self.xp.with_constants(constants)
        try:
            results = self(*arrays)
        finally:
            self.xp = unseeing
        return results, [i for i, a in enumerate(arrays) if id(a) in constants.with_conditions]


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
    return _hole_for(parameter, value)


def _hole_for(parameter: Parameter, value: Value) -> Any:
    if isinstance(value, (Static, Device)) and parameter.type not in (Arrays, Map):
        return HOLE
    if isinstance(value, list) and parameter.type == Arrays:
        return Holes(len(value))
    if isinstance(value, Map) and parameter.type is Map:
        return replace(value, values=HOLE)
    wanted = {Arrays: "a sequence of arrays", Map: "a map"}.get(parameter.type, "an array")
    raise TypeError(f"'{parameter.name}' takes {wanted}")


def _filled(xp: Backend, argument: Any, given: Iterator[Any]) -> Any:
    if argument is HOLE:
        return next(given)
    if isinstance(argument, Holes):
        return [next(given) for _ in range(argument.count)]
    if isinstance(argument, Map) and argument.values is HOLE:
        return replace(argument, values=next(given))
    return _native(xp, argument)


def _native(xp: Backend, argument: Any) -> Any:
    """A shape and dtype in the library's own terms, as an array of its would tell them."""
    if isinstance(argument, Spec):
        return Spec(argument.shape, xp.dtype(argument.dtype))
    return argument


def _key_of(value: Any) -> Any:
    """A value's key; of what only stands for an array, the shape and the dtype."""
    if isinstance(value, Static):
        return digest(value.value)
    return (value.shape, value.dtype) if isinstance(value, Device) else exact(value)
