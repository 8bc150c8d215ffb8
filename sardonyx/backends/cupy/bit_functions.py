"""CuPy's functions on `Bits`: on their bytes if elements only move, otherwise on their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeAlias

import cupy
import numpy as np

from sardonyx.backends.cupy.bits import Bits, bytes_of, cast, fetched, widened
from sardonyx.backends.cupy.graph_memory import current_capture
from sardonyx.backends.fusion.narrow_types import NARROW, number_dtype
from sardonyx.backends.numpy import HOST, NumpyLike
from sardonyx.backends.shape_arrays import shape_array
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Standard

UINT8 = np.dtype(np.uint8)
# Of more arrays CuPy uploads the addresses, which breaks a capture.
MOST_JOINED = 8
Function: TypeAlias = Callable[..., Any]


def carrying(form: Function) -> Callable[[Function], Function]:
    """Return a decorator: `form` computes a method's calls with `Bits`.

    It gets the method, bound, as its first argument.
    """

    def decorate(method: Function) -> Function:
        @wraps(method)
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if not _holds_bits(arguments):
                return method(self, *arguments, **options)
            return form(method.__get__(self), *arguments, **options)

        return call

    return decorate


def _holds_bits(arguments: Sequence[Any]) -> bool:
    # Without a loop: each call of each function asks this.
    return Bits in map(type, arguments)


# -- forms ----------------------------------------------------------------------------------------


def moved(function: Function, x: Bits, *others: Any, **options: Any) -> Any:
    """Move the bytes of the first argument."""
    found = function(x.bits, *others, **options)
    if isinstance(found, (tuple, list)):
        return type(found)([Bits(one, x.dtype) for one in found])
    return Bits(found, x.dtype)


def computed(name: str) -> Function:
    """Return the form of a function that computes with numbers; results have NumPy's dtypes."""

    def form(function: Function, *arguments: Any, **options: Any) -> Any:
        found = function(*map(widened, arguments), **options)
        result = getattr(SHAPES, name)(*map(_blank, arguments), **options)
        return cast(found, result.dtype)

    return form


def _counted(function: Function, x: Bits) -> Any:
    """Return places, which are integers."""
    return function(widened(x))


def joined(function: Function, arrays: Sequence[Any], **options: Any) -> Any:
    """Join arrays, in the dtype to which NumPy promotes all of them."""
    if len(arrays) > MOST_JOINED and current_capture() is not None:
        groups = [arrays[i : i + MOST_JOINED] for i in range(0, len(arrays), MOST_JOINED)]
        parts = [joined(function, group, **options) for group in groups]
        return joined(cupy.concatenate, parts, axis=options.get("axis", 0))
    if not _holds_bits(arrays):
        return function(arrays, **options)
    dtype = np.result_type(*(array.dtype for array in arrays))
    same = [cast(array, dtype) for array in arrays]
    if dtype not in NARROW:
        return function(same, **options)
    return Bits(function([array.bits for array in same], **options), dtype)


def chosen(function: Function, condition: Any, x: Any, y: Any) -> Any:
    """Choose between arrays or numbers."""
    dtype = np.result_type(*(getattr(value, "dtype", value) for value in (x, y)))
    x, y = (cast(v, dtype) if isinstance(v, (Bits, cupy.ndarray)) else v for v in (x, y))
    condition = cast(condition, np.dtype(bool)) if isinstance(condition, Bits) else condition
    if dtype not in NARROW:
        return function(condition, x, y)
    return Bits(function(condition, bytes_of(x, dtype), bytes_of(y, dtype)), dtype)


def padded(function: Function, x: Any, widths: Any, value: Any) -> Any:
    if not isinstance(x, Bits):
        return function(x, widths, cast(value, x.dtype))
    return Bits(function(x.bits, widths, bytes_of(value, x.dtype)), x.dtype)


def scattered(
    function: Function, x: Any, places: Any, updates: Any, combine: str | None = None
) -> Any:
    if not isinstance(x, Bits):
        return function(x, places, cast(updates, x.dtype), combine)
    if combine is None:
        return Bits(function(x.bits, places, bytes_of(updates, x.dtype)), x.dtype)
    # NumPy rounds after each update, and in an order that a device does not have.
    on_host = x.get(), tuple(map(cupy.asnumpy, places)), fetched(updates)
    return Bits.of(HOST.scatter(*on_host, combine))


def broadcast(function: Function, *arrays: Any) -> Any:
    same = function(*(a.bits if isinstance(a, Bits) else a for a in arrays))
    pairs = zip(same, arrays, strict=True)
    return [Bits(new, old.dtype) if isinstance(old, Bits) else new for new, old in pairs]


def _blank(value: Any) -> Any:
    """Return an array without data in place of an array, for shape inference."""
    is_array = isinstance(value, (Bits, cupy.ndarray))
    return shape_array(value.shape, value.dtype) if is_array else value


# -- creation -------------------------------------------------------------------------------------


def _created(function: Function, *arguments: Any, **options: Any) -> Any:
    """Create an array, of numbers that are converted if the option asks for a narrow dtype."""
    arguments = tuple(map(widened, arguments))
    if (dtype := _narrow_option(options)) is None:
        return function(*arguments, **options)
    return cast(function(*arguments, **{**options, "dtype": number_dtype(dtype)}), dtype)


def _filled(function: Function, shape: Any, value: Any, *, dtype: Any = None) -> Any:
    dtype = getattr(value, "dtype", None) if dtype is None else dtype
    return _created(function, shape, value, dtype=dtype)


def _blanked(function: Function, *arguments: Any, **options: Any) -> Any:
    """Create an array whose bytes are zero, which stand for a number other than 0 in float8e8m0."""
    if (dtype := _narrow_option(options)) is None:
        return function(*arguments, **options)
    return Bits(function(*arguments, **{**options, "dtype": UINT8}), dtype)


def _like(form: Function) -> Function:
    """Return the form of a function whose first argument says shape and dtype."""

    def like(function: Function, x: Any, *others: Any, dtype: Any = None, **options: Any) -> Any:
        array = x.bits if isinstance(x, Bits) else x
        dtype = x.dtype if dtype is None else dtype
        return form(function, array, *others, dtype=dtype, **options)

    return like


def _narrow_option(options: Mapping[str, Any]) -> np.dtype[Any] | None:
    dtype = options.get("dtype")
    return np.dtype(dtype) if dtype is not None and np.dtype(dtype) in NARROW else None


# -- the library ----------------------------------------------------------------------------------

_MOVED = (
    *("broadcast_to", "expand_dims", "flip", "matrix_transpose", "moveaxis", "permute_dims"),
    *("repeat", "reshape", "roll", "squeeze", "take", "take_along_axis", "tile", "unstack"),
)
# The forms of calls with `Bits`.
_TAKING: dict[str, Function] = {
    **{name: computed(name) for name in Standard.__annotations__},
    **dict.fromkeys(_MOVED, moved),
    "broadcast_arrays": broadcast,
    "nonzero": _counted,
    "where": chosen,
}
# The forms of all calls, which may ask for `Bits`, or hold them in a sequence.
_ALWAYS: dict[str, Function] = {
    **dict.fromkeys(("arange", "eye", "linspace", "ones"), _created),
    **dict.fromkeys(("full_like", "ones_like"), _like(_created)),
    **dict.fromkeys(("empty", "zeros"), _blanked),
    **dict.fromkeys(("concat", "stack"), joined),
    "full": _filled,
    "zeros_like": _like(_blanked),
}


class Taking:
    """A function of CuPy, and the form of its calls with `Bits`."""

    def __init__(self, function: Any, form: Function) -> None:
        self.function, self.form = function, form

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not _holds_bits(arguments):
            return self.function(*arguments, **options)
        return self.form(self.function, *arguments, **options)

    @property
    def at(self) -> Any:
        """What combines elements in place, of a function of two arrays."""
        return self.function.at


class CupyFunctions:
    """CuPy's functions, which also take and return `Bits`."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(cupy, name)
        if name in _ALWAYS:
            found = partial(_ALWAYS[name], found)
        elif name in _TAKING:
            found = Taking(found, _TAKING[name])
        setattr(self, name, found)
        return found


LIBRARY = CupyFunctions()


class BitFunctions(NumpyLike):
    """What `NumpyLike` does with CuPy's arrays, for `Bits` too."""

    def astype(self, x: Any, dtype: Any) -> Any:
        if isinstance(x, (Bits, cupy.ndarray)):
            return cast(x, np.dtype(dtype))
        return super().astype(x, dtype)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        data = x.bits if isinstance(x, Bits) else x
        if np.dtype(dtype) in NARROW:
            return Bits(super().bitcast(data, UINT8), np.dtype(dtype))
        return super().bitcast(data, dtype)

    elements_at = carrying(moved)(NumpyLike.elements_at)
    with_strides = carrying(moved)(NumpyLike.with_strides)
    fmod = carrying(computed("fmod"))(NumpyLike.fmod)

    def write(self, out: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if not isinstance(out, Bits):
            return super().write(out, function, *arguments)
        value = function(self, *arguments)
        if value is not out:
            out[...] = value.copy()
        return out

    @staticmethod
    def _in_float32(function: Function, *arrays: Any, **options: Any) -> Any:
        if not _holds_bits(arrays):
            return NumpyLike._in_float32(function, *arrays, **options)
        dtype = arrays[0].dtype
        found = function(*map(widened, arrays), **options)
        return cast(found, dtype) if number_dtype(dtype).kind == "f" else found
