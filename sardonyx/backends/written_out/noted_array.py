"""Arrays that note what is done with them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.shape_arrays import shape_array
from sardonyx.backends.written_out.functions import FREE, METHODS, NOTED, UFUNC_METHODS
from sardonyx.backends.written_out.notes import (
    NotedValue,
    Notes,
    Unnoted,
    has_noted,
    mapped,
    value_of,
)


class NotedArray(NotedValue, np.lib.mixins.NDArrayOperatorsMixin):
    """An array that notes all calls of NumPy's functions, and refuses what cannot be noted.

    Shape and dtype are those of later calls too, so ops may look at them. Elements are not.
    """

    __slots__ = ("_notes",)

    def __init__(self, notes: Notes, value: Any, place: Any = None) -> None:
        super().__init__(notes.new_place() if place is None else place, value)
        self._notes = notes

    # -- facts ------------------------------------------------------------------------------------

    @property
    def notes(self) -> Notes:
        return self._notes

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.value.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size: int = self.value.size
        return size

    @property
    def itemsize(self) -> int:
        itemsize: int = self.dtype.itemsize
        return itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    # -- what is noted ----------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method not in UFUNC_METHODS:
            raise Unnoted
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if method == "at":
            return noted_change(self._notes, function, inputs[0], inputs, options)
        outs = options.pop("out", (None,))
        if outs[0] is None:
            return noted_call(self._notes, function, inputs, options)
        if len(outs) > 1:
            raise Unnoted
        noted_change(self._notes, function, outs[0], inputs, {**options, "out": outs[0]})
        return outs[0]

    def __array_function__(
        self, function: Any, types: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        if function in FREE:
            return function(*mapped(value_of, arguments), **mapped(value_of, dict(options)))
        count = NOTED.get(function)
        if count is None or (function is np.where and len(arguments) != 3):
            raise Unnoted
        return noted_call(self._notes, function, arguments, options, arrays=count)

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS:
            return noted_call(self._notes, _PARTS[name], (self,))
        count = METHODS.get(name)
        if count is None:
            raise Unnoted
        function = getattr(np.ndarray, name)

        def method(*arguments: Any, **options: Any) -> Any:
            return noted_call(self._notes, function, (self, *arguments), options, arrays=count)

        return method

    def __getitem__(self, key: Any) -> Any:
        return noted_call(self._notes, operator.getitem, (self, _known_size(key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        arguments = (self, _known_size(key), value)
        noted_change(self._notes, operator.setitem, self, arguments)

    def __pow__(self, exponent: Any) -> Any:
        # NumPy's operator takes roots and squares where the exponent is such a number, and other
        # bits come of `np.power`.
        if isinstance(exponent, (int, float)):
            return noted_call(self._notes, operator.pow, (self, exponent))
        return super().__pow__(exponent)

    @property
    def is_of_sizes(self) -> bool:
        """Whether later calls have other sizes than those of these notes."""
        return self._notes.are_of_sizes

    def noted_sum(self, add: Callable[..., Any], axis: int, *, keepdims: bool) -> Any:
        """Note a sum along an axis as one call, which decides when it runs how to add."""
        shape = list(self.shape)
        shape[axis : axis + 1 or None] = [1] * keepdims
        result = shape_array(tuple(shape), self.dtype)
        return noted_call(self._notes, add, (self, axis, keepdims), price=0.0, result=result)

    # -- what is refused --------------------------------------------------------------------------

    def _unreadable(self, *_: Any, **__: Any) -> Any:
        raise Unnoted

    __array__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = _unreadable
    __iter__ = __contains__ = __dlpack__ = __copy__ = __deepcopy__ = __ipow__ = _unreadable


# Views of arrays that are attributes of them.
_PARTS = {name: operator.attrgetter(name) for name in ("T", "imag", "mT", "real")}


def noted_call(
    notes: Notes,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    *,
    arrays: int | None = None,
    price: float | None = None,
    is_step: bool = False,
    is_kernel: bool = False,
    result: Any = None,
) -> Any:
    """Call a function of NumPy and note it; only the first `arrays` arguments may be noted ones.

    It is not called if there is an array like its result.
    """
    if has_noted((dict(options or {}), *arguments[arrays or len(arguments) :])):
        raise Unnoted
    place, result = notes.call(
        function,
        arguments,
        options,
        price=price,
        is_step=is_step,
        is_kernel=is_kernel,
        result=result,
    )
    return _noted(notes, place, result, list(_flat(tuple(arguments))))


def noted_product(
    multiply: Callable[[Any, Any], Any], a: Any, b: Any, shape: tuple[int, ...]
) -> Any:
    """Note a product as one call, which decides when it runs how to multiply."""
    like = shape_array(shape, np.result_type(a.dtype, b.dtype))
    price = a.notes.price_of_call(np.matmul, (a, b), like)
    return noted_call(a.notes, multiply, (a, b), price=price, result=like)


def noted_change(
    notes: Notes,
    function: Callable[..., Any],
    changed: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any] | None = None,
) -> None:
    """Call a function that changes an array."""
    if not isinstance(changed, NotedArray):
        raise Unnoted  # A constant would keep what one call writes.
    notes.call(function, arguments, options, changes=changed)


def _noted(notes: Notes, place: Any, result: Any, arguments: Sequence[Any]) -> Any:
    """Return a result as an array, or as several if it is a tuple or a list of them.

    Some functions return an argument where nothing is to be done. It is no new array then.
    """
    if isinstance(result, np.ndarray):
        same = (a for a in arguments if value_of(a) is result)
        return next(same, NotedArray(notes, result, place))
    if isinstance(result, np.generic):
        return NotedArray(notes, result, place)
    if not isinstance(result, (tuple, list)):
        raise Unnoted
    whole = NotedValue(place, result)
    parts = [notes.call(operator.getitem, (whole, i)) for i in range(len(result))]
    return tuple([_noted(notes, *part, arguments) for part in parts])


def _known_size(key: Any) -> Any:
    """Return an index, unless how much it finds depends on elements."""
    if any(map(_has_unknown_size, _flat(key))):
        raise Unnoted
    return key


def _has_unknown_size(index: Any) -> bool:
    if isinstance(index, slice):
        return has_noted(index)
    return isinstance(index, NotedArray) and bool(index.dtype == np.bool_)


def _flat(item: Any) -> Iterator[Any]:
    if type(item) in (tuple, list):
        for each in item:
            yield from _flat(each)
    else:
        yield item
