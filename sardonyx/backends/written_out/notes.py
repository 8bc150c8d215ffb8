"""What ops did with arrays: a list of calls of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.written_out.functions import faster
from sardonyx.backends.written_out.prices import price_of


class Unnoted(Exception):  # noqa: N818  (a signal, not an error)
    """An op did something that cannot be noted, such as reading elements."""


class TooDear(Exception):  # noqa: N818  (a signal, not an error)
    """A program does too much to be written out."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value that the function computes, or takes, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A number or an object that the function takes, as it depends on sizes, by its number."""

    number: int


@dataclass(frozen=True, eq=False, slots=True)
class NotedCall:
    """One call. Values that the function computes are places, at any depth."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    result: Place
    # The array that the call changes, if it does.
    changes: Place | None
    price: float
    # The shape of its result, and the dtype, if that is an array.
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    # Whether it is there to raise an error.
    demands: bool = False
    # Whether it is a step of the program that runs as before.
    is_step: bool = False
    # Whether it is a kernel of a library, which can run in one call with others.
    is_kernel: bool = False

    @property
    def is_variable(self) -> bool:
        """Whether it has a variable anywhere."""
        return has_variable((self.function, self.arguments, dict(self.options)))


class Notes:
    """The calls so far, with the sum of their prices in microseconds, which has a limit."""

    def __init__(self, limit: float, *, are_of_sizes: bool = False) -> None:
        self.calls: list[NotedCall] = []
        # Whether later calls have other sizes.
        self.are_of_sizes = are_of_sizes
        self._total = 0.0
        self._limit = limit
        self._count = 0

    def new_place(self) -> Place:
        """Return the place of one more value."""
        self._count += 1
        return Place(self._count - 1)

    def drop_after(self, count: int) -> None:
        """Forget all calls but the first ones."""
        self._total -= sum(call.price for call in self.calls[count:])
        del self.calls[count:]

    def call(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        options: Mapping[str, Any] | None = None,
        *,
        changes: NotedValue | None = None,
        price: float | None = None,
        is_step: bool = False,
        is_kernel: bool = False,
        result: Any = None,
    ) -> tuple[Place, Any]:
        """Call the function with the values, and note it; return the result's place, and itself.

        It is not called if there is an array like its result.
        """
        function, arguments, options = faster(function, tuple(arguments), dict(options or {}))
        values = mapped(value_of, arguments)
        if result is None:
            result = self._result(function, values, mapped(value_of, options), changes)
        first = arguments[0] if arguments and changes is None else None
        if isinstance(first, NotedValue) and _is_same(function, first.value, result):
            return first.place, first.value
        if price is None:
            price = self.price_of_call(function, values, result)
        call = NotedCall(
            function,
            mapped(_place_of, arguments),
            mapped(_place_of, options),
            self.new_place(),
            None if changes is None else changes.place,
            price,
            getattr(result, "shape", None),
            getattr(result, "dtype", None),
            is_step=is_step,
            is_kernel=is_kernel,
        )
        return self._keep(call), result

    def _result(
        self,
        function: Callable[..., Any],
        values: Sequence[Any],
        options: Mapping[str, Any],
        changes: NotedValue | None,
    ) -> Any:
        return function(*values, **options)

    def price_of_call(
        self, function: Callable[..., Any], values: Sequence[Any], result: Any
    ) -> float:
        """Return the price of a call in microseconds."""
        return price_of(function, values, result)

    def demand(self, function: Callable[..., Any], arguments: Sequence[Any], price: float) -> None:
        """Note a call that only raises an error, for other elements than these."""
        noted = mapped(_place_of, tuple(arguments))
        self._keep(NotedCall(function, noted, {}, self.new_place(), None, price, demands=True))

    def _keep(self, call: NotedCall) -> Place:
        self._total += call.price
        if self._total > self._limit:
            raise TooDear
        self.calls.append(call)
        return call.result


class NotedValue:
    """A value with its place. Its elements are not those of later calls."""

    __slots__ = ("place", "value")

    def __init__(self, place: Place, value: Any) -> None:
        self.place, self.value = place, value


def _is_same(function: Callable[..., Any], value: Any, result: Any) -> bool:
    """Whether a call returns what it takes: the array, or a view with the same shape."""
    if type(value) is not np.ndarray:
        return False  # NumPy has only two numbers that are Booleans.
    is_view = function is np.ndarray.reshape and result.shape == value.shape
    return is_view or result is value


def value_of(item: Any) -> Any:
    return item.value if isinstance(item, NotedValue) else item


def _place_of(item: Any) -> Any:
    return item.place if isinstance(item, NotedValue) else item


def mapped(function: Callable[[Any], Any], item: Any) -> Any:
    """Apply the function to what is not a tuple, a list, a dict or a slice, at any depth."""
    kind = type(item)
    if kind is tuple or kind is list:
        return kind([mapped(function, e) if type(e) in _NESTED else function(e) for e in item])
    if kind is dict:
        return {key: mapped(function, each) for key, each in item.items()}
    if kind is slice:
        return slice(*[mapped(function, each) for each in (item.start, item.stop, item.step)])
    return function(item)


def has_noted(item: Any) -> bool:
    """Whether a noted value is anywhere in it."""
    return _has(item, NotedValue)


def has_variable(item: Any) -> bool:
    """Whether a variable is anywhere in it."""
    return _has(item, Variable)


_NESTED = frozenset((tuple, list, dict, slice))


def _has(item: Any, wanted: type) -> bool:
    kind = type(item)
    if kind not in _NESTED:
        return isinstance(item, wanted)
    if kind is slice:
        item = item.start, item.stop, item.step
    return any(_has(each, wanted) for each in (item.values() if kind is dict else item))
