"""Calls of ops: all arguments except arrays are filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends import random
from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Constants
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.tracing.binding import Argument
from sardonyx.graph.tracing.cached import Cached
from sardonyx.graph.values.kinds import Device, Static, Value, digest, exact
from sardonyx.graph.values.mmap import content
from sardonyx.ops.definition import Arrays, Definition, Map, Need, Parameter

# Marks the place of an array that is known only when the program runs.
HOLE = object()


@dataclass(frozen=True, slots=True)
class Holes:
    """Marks the place of a sequence of arrays."""

    count: int


# Nothing changes one; it is not frozen, because frozen ones take six times as long to create.
@dataclass(eq=False)
class OpCall:
    """A function of the backend and of arrays, which a step calls."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attributes: Mapping[str, Any]
    # The results' dtypes according to the standard; None if it leaves them open.
    dtypes: tuple[np.dtype[Any] | None, ...]
    outputs: int | None = None
    makes_sequence: bool = False
    is_unsized: bool = False
    # Whether the result is a view of the first array.
    is_view: bool = False

    @classmethod
    def of(
        cls,
        definition: Definition,
        arguments: Sequence[Argument],
        attributes: Mapping[str, Any],
        dtypes: Sequence[np.dtype[Any] | None],
    ) -> OpCall:
        """Fill in the known arguments, and leave holes for the arrays."""
        return cls(
            definition.function,
            tuple(map(_known_or_hole, arguments)),
            attributes,
            tuple(dtypes),
            outputs=len(dtypes),
            makes_sequence=definition.makes_sequence,
            is_unsized=definition.is_unsized,
            is_view=definition.is_view,
        )

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        if self._takes_arrays_alone:
            result = self.function(xp, *arrays, **self.attributes)
            if type(result) is np.ndarray and result.dtype == self.dtypes[0]:
                return (result,)  # As most are on the host.
            results = result if isinstance(result, tuple) else (result,)
        else:
            results = self.unrounded(xp, arrays)
        if not self.makes_sequence:
            results = results[: self.outputs]
        return tuple([self.rounded(xp, i, result) for i, result in enumerate(results)])

    def unrounded(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return the op's results with the dtypes that it computed them in."""
        rest = iter(arrays)
        if self._takes_plain_arrays:
            arguments = [next(rest) if a is HOLE else a for a in self.arguments]
        else:
            arguments = [next(rest) if a is HOLE else _filled(xp, a, rest) for a in self.arguments]
        results = self.function(xp, *arguments, **self.attributes)
        several = self.makes_sequence or isinstance(results, tuple)
        return tuple(results) if several else (results,)

    @Cached
    def _takes_arrays_alone(self) -> bool:
        """Whether each argument is an array, and each result."""
        is_plain = all(argument is HOLE for argument in self.arguments)
        return is_plain and bool(self.dtypes) and not self.makes_sequence

    @Cached
    def _takes_plain_arrays(self) -> bool:
        """Whether no argument is a sequence, a map, or a dtype of the library's own."""
        return not any(isinstance(a, (Holes, Map, Spec)) for a in self.arguments)

    def rounded(self, xp: Backend, index: int, result: Any) -> Any:
        """Return a result in the standard's dtype, as some ops compute in a wider one."""
        dtype = self.dtypes[index] if index < len(self.dtypes) else None
        if type(result) is np.ndarray and result.dtype == dtype:
            return result  # As most are on the host.
        if not hasattr(result, "ndim") or isinstance(result, np.generic):
            result = HOST.asarray(result)  # NumPy hands out scalars for arrays of rank 0.
        if dtype is None or xp.numpy_dtype(result.dtype) == dtype:
            return result
        return xp.astype(result, xp.dtype(dtype))

    @Cached
    def key(self) -> tuple[Any, ...] | None:
        """Equal for calls that compute the same from equal arrays; None if that is unknown."""
        try:
            values = tuple(map(_key_of, (*self.arguments, *self.attributes.values())))
            hash(values)
        except TypeError:
            return None
        return exact(self.function), values, tuple(self.attributes), self.dtypes


@dataclass(frozen=True, slots=True)
class Drawing:
    """An op that draws at random, with a key of its own: the call's key and the node's number.

    The last arguments are the call's key and the numbers of the iterations around the node.
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


def requested_dtypes(call: OpCall) -> list[np.dtype[Any]]:
    """Return the dtypes that attributes name, and those of arguments whose data are not read."""
    dtypes = [a.dtype for a in call.arguments if isinstance(a, Spec)]
    return [d for d in (*call.attributes.values(), *dtypes) if isinstance(d, np.dtype)]


def observed(
    call: Callable[..., Sequence[Any]],
    xp: Backend,
    arrays: Sequence[Any],
    values: Sequence[np.ndarray[Any, Any] | None],
) -> tuple[tuple[Any, ...], list[int | None], list[int]]:
    """Call an op; return its results, which arguments these are, and which arguments it checks.

    The second list has a number for each result that is an argument itself. The third has the
    numbers of the arguments whose data must meet a condition; those in `values` must meet it now.
    """
    pairs = zip(arrays, values, strict=True)
    values_of = {id(array): partial(content, value) for array, value in pairs if value is not None}
    constants = Constants(values_of)
    results = tuple(call(xp.with_constants(constants), arrays))
    same = [next((i for i, a in enumerate(arrays) if a is r), None) for r in results]
    return results, same, [i for i, a in enumerate(arrays) if id(a) in constants.with_conditions]


def _known_or_hole(argument: Argument) -> Any:
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


def _filled(xp: Backend, argument: Any, arrays: Iterator[Any]) -> Any:
    if isinstance(argument, Holes):
        return [next(arrays) for _ in range(argument.count)]
    if isinstance(argument, Map) and argument.values is HOLE:
        return replace(argument, values=next(arrays))
    if isinstance(argument, Spec):  # The op sees the dtype that the library's arrays have.
        return Spec(argument.shape, xp.dtype(argument.dtype))
    return argument


def _key_of(value: Any) -> Any:
    """Return the key of a value; for an array on the device, its shape and dtype."""
    if isinstance(value, Static):
        return digest(value.value)
    return (value.shape, value.dtype) if isinstance(value, Device) else exact(value)
