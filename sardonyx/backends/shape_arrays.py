"""Arrays with a shape and a dtype and no data, on which NumPy's functions cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from sardonyx.backends.standard import Shape

# The bytes of the one element of every array.
_ELEMENT = bytes(64)


class NoShapeRule(Exception):  # noqa: N818  (a signal, not an error)
    """Only a library that computes can say what the result is like."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NoShapeRule


class ShapeArray(np.ndarray[Any, Any]):
    """An array whose elements are all one zero, which nothing may read.

    NumPy itself computes its views, such as slices and transposed forms. Of a ufunc the results'
    shapes and dtypes are computed, and no elements. Everything else raises `NoShapeRule`.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.signature is not None or options:
            raise NoShapeRule
        shape: Shape | None = None
        elements = []
        for value in inputs:
            if isinstance(value, np.ndarray):
                if shape is None:
                    shape = value.shape
                elif value.shape != shape:
                    shape = np.broadcast_shapes(shape, value.shape)
                elements.append(element(value.dtype))
            else:
                elements.append(value)
        results = ufunc(*elements)
        if isinstance(results, tuple):
            return tuple([shape_array(shape or (), result.dtype) for result in results])
        return shape_array(shape or (), results.dtype)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function not in _VIEWS:
            raise NoShapeRule
        return super().__array_function__(function, types, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        # With arrays as indices NumPy would copy elements.
        if not all(part is None or part is Ellipsis or isinstance(part, _PLACES) for part in parts):
            raise NoShapeRule
        result = super().__getitem__(key)
        if not isinstance(result, ShapeArray):
            return shape_array((), self.dtype)
        is_whole = result.shape == self.shape and not any(_turns(part) for part in parts)
        return self if is_whole else result

    # What reads elements, or writes them.
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = _refuse
    __setitem__ = __contains__ = _refuse
    item = tolist = tobytes = copy = astype = _refuse


# What a single axis may be indexed by.
_PLACES = (int, slice, np.integer)

# NumPy's functions that return a view, or no array at all.
_VIEWS = {
    np.expand_dims,
    np.flip,
    np.matrix_transpose,
    np.moveaxis,
    np.permute_dims,
    np.ndim,
    np.reshape,
    np.result_type,
    np.shape,
    np.squeeze,
    np.swapaxes,
    np.transpose,
}


def _turns(part: Any) -> bool:
    """Whether a part of an index can give as many elements as there are in another order."""
    return not (part is Ellipsis or (isinstance(part, slice) and part.step in (None, 1)))


def shape_array(shape: Sequence[int], dtype: Any) -> ShapeArray:
    """Return an array of this shape and dtype.

    >>> import numpy as np
    >>> (shape_array((2, 1), np.dtype(np.int8)) + shape_array((3,), np.dtype(np.int32))).shape
    (2, 3)
    """
    return ShapeArray(tuple(shape), dtype, _ELEMENT, 0, (0,) * len(shape))


def element(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an ordinary array of a single zero."""
    return np.zeros((1,), dtype)


def reduced_shape(x: Any, axis: int | Sequence[int] | None, keepdims: bool) -> Shape:
    """Return the shape of a reduction of `x`.

    >>> reduced_shape(np.zeros((2, 3, 4)), axis=(0, -1), keepdims=False)
    (3,)
    """
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    places = {_place(x, one) for one in axes}
    if keepdims:
        return tuple(1 if i in places else size for i, size in enumerate(x.shape))
    return tuple(size for i, size in enumerate(x.shape) if i not in places)


def replaced(x: Any, axis: int, size: int) -> Shape:
    """Return the shape of `x` with another size on one axis."""
    place = _place(x, axis)
    return (*x.shape[:place], size, *x.shape[place + 1 :])


def taken_shape(x: Any, indices: Any, axis: int) -> Shape:
    """Return the shape of the elements of `x` with these indices on one axis.

    >>> taken_shape(np.zeros((2, 3, 4)), np.zeros((5, 6)), 1)
    (2, 5, 6, 4)
    """
    place = _place(x, axis)
    return (*x.shape[:place], *np.shape(indices), *x.shape[place + 1 :])


def product_shape(a: Any, b: Any) -> Shape:
    """Return the shape of the matrix product."""
    if not a.ndim or not b.ndim:
        raise ValueError("a matrix product of a scalar")
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if b.ndim > 1 else ()
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"the product of matrices of shapes {a.shape} and {b.shape}")
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *rows, *columns)


def joined_shape(arrays: Sequence[Any], axis: int) -> Shape:
    """Return the shape of arrays that are joined along an axis."""
    first = arrays[0]
    place = _place(first, axis)
    if len({replaced(array, axis, 0) for array in arrays}) > 1:
        raise ValueError("arrays of different shapes are joined")
    return replaced(first, place, sum(array.shape[place] for array in arrays))


def _place(x: Any, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} of an array of {x.ndim} axes")
    return int(axis % x.ndim)
