"""Calls of NumPy that a library's kernels can do as well, beside kernels that run in one call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from sardonyx.backends.executable import JoinableFunctions
from sardonyx.backends.written_out.notes import NotedCall, Place
from sardonyx.backends.written_out.source import places_in

_FLOAT32 = np.dtype(np.float32)
_PRODUCTS = (np.matmul, np.ndarray.dot)
_MEANS = (np.mean, np.ndarray.mean)
_VIEWS: tuple[Any, ...] = (
    operator.getitem,
    *(getattr(np.ndarray, name) for name in ("reshape", "squeeze", "swapaxes", "transpose")),
)


class Library(Protocol):
    """The library of the kernels."""

    def joinable_functions(self) -> JoinableFunctions | None:
        """Return `Backend.joinable_functions`."""

    def matmul(self, a: Any, b: Any) -> Any:
        """Return the product of matrices."""

    def reshape(self, x: Any, shape: Any) -> Any:
        """Return the array in another shape; a kernel copies it if need be."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """Finds what can do the same as calls of NumPy beside kernels in one call."""

    kernels: Library
    functions: JoinableFunctions | None
    # What is the same each time; the calls by their results; and whether any changes an array.
    known: Collection[Place]
    made_by: Mapping[Place, NotedCall]
    has_changes: bool

    @classmethod
    def among(
        cls, calls: Iterable[NotedCall], known: Collection[Place], kernels: Library
    ) -> Adoption:
        """Return one for these calls."""
        made_by = {call.result: call for call in calls}
        has_changes = any(call.changes is not None for call in made_by.values())
        return cls(kernels, kernels.joinable_functions(), known, made_by, has_changes)

    def joined(self, call: NotedCall) -> NotedCall:
        """Return what runs in one call with others, for a kernel or for a call that is adopted."""
        adopted = None if call.is_kernel else self.adopted(call)
        return call if adopted is None else adopted

    def adopted(self, call: NotedCall) -> NotedCall | None:
        """Return a call that does the same, or one of a view; None if there is neither."""
        if call.is_step or call.demands or call.changes is not None:
            return None
        if call.function in _VIEWS:
            return self._view(call)
        if call.function is np.ndarray.take:
            return self._taken(call)
        functions = self.functions
        if functions is None or call.is_variable or not self._is_of_floats(call):
            return None
        return self._computed(call, functions)

    def _is_of_floats(self, call: NotedCall) -> bool:
        """Whether neither the result nor an argument is known to be of another type."""
        arguments = [place for place in call.arguments if type(place) is Place]
        makers = [self.made_by[place] for place in arguments if place in self.made_by]
        return call.dtype == _FLOAT32 and all(m.dtype in (None, _FLOAT32) for m in makers)

    def _view(self, call: NotedCall) -> NotedCall | None:
        if len(places_in(call)) != 1:
            return None
        if call.function is not np.ndarray.reshape:
            return call
        x, *shape = call.arguments
        # NumPy takes it as one argument, or as several, and may have to copy.
        whole = shape[0] if len(shape) == 1 else tuple(shape)
        return replace(call, function=self.kernels.reshape, arguments=(x, whole))

    def _taken(self, call: NotedCall) -> NotedCall | None:
        """Return the view along an axis at the one place that is taken each time.

        A copy is not needed as long as no call changes arrays.
        """
        x, index, *others = call.arguments
        maker = self.made_by.get(x) if isinstance(x, Place) else None
        axis = call.options.get("axis")
        if others or call.options.keys() != {"axis"} or type(axis) is not int or self.has_changes:
            return None
        if maker is None or maker.shape is None or call.shape is None:
            return None
        rank, taken = len(maker.shape), call.shape
        # The index has no axes, or one with a single place.
        is_at_one = len(taken) == rank - 1 or (len(taken) == rank and taken[axis] == 1)
        if not is_at_one or not isinstance(index, Place) or index not in self.known:
            return None
        return replace(call, function=_at, arguments=(x, index, axis % rank), options={})

    def _computed(self, call: NotedCall, functions: JoinableFunctions) -> NotedCall | None:
        if functions.has_elements_of(call.function):
            return _of_elements(call, functions)
        if call.function == np.add.reduce:
            return _reduced(call, functions, functions.summed)
        if call.function in _MEANS:
            return _reduced(call, functions, functions.averaged)
        is_product = call.function in _PRODUCTS or call.function == self.kernels.matmul
        if is_product and not call.options and len(call.shape or ()) > 1:
            return replace(call, function=self.kernels.matmul)
        return None


def _of_elements(call: NotedCall, functions: JoinableFunctions) -> NotedCall | None:
    operands = [_place_or_number(argument) for argument in call.arguments]
    if call.options or None in operands:
        return None
    function: Callable[..., Any] = partial(functions.of_elements, call.function)
    return replace(call, function=function, arguments=tuple(operands))


def _reduced(
    call: NotedCall, functions: JoinableFunctions, reduction: Callable[..., Any]
) -> NotedCall | None:
    options = dict(call.options)
    axis, keepdims = options.pop("axis", None), bool(options.pop("keepdims", False))
    options.pop("dtype", None)  # That of the result.
    axes = axis if isinstance(axis, tuple) else (axis,)
    is_plain = not options and len(call.arguments) == 1 and call.shape is not None
    if not is_plain or not all(type(each) is int for each in axes):
        return None
    rank = len(call.shape or ()) + (0 if keepdims else len(axes))
    axes = tuple([each % rank for each in axes])
    if not functions.has_sums_over(axes):
        return None
    function = partial(reduction, keepdims=keepdims)
    return replace(call, function=function, arguments=(*call.arguments, axes), options={})


def _at(x: Any, index: Any, axis: int) -> Any:
    """Return what `x.take(index, axis)` does, of an index with one element, as a view."""
    place = int(index.reshape(()))
    before = (slice(None),) * axis
    return x[(*before, slice(place, place + 1 or None) if index.ndim else place)]


def _place_or_number(argument: Any) -> Place | float | None:
    if isinstance(argument, Place):
        return argument
    number = np.asarray(argument)
    return float(number) if number.ndim == 0 and number.dtype.kind in "fiu" else None
