"""Arrays come back as they went in: telling libraries apart, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.graph.errors.node_errors import raise_told
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.standard.types import dtype_of_type, short_name
from sardonyx.ops.definition import Map

Convert = Callable[[Any], Any]
# Of NumPy's arrays.
MOST_AXES = 64


def normalised(value: Any, info: ValueInfo) -> Any:
    """What a caller passed, as arrays: lists and numbers become NumPy's, of the declared type."""
    kind = (info.type or "").partition("(")[0]
    if kind == "optional":
        return None if value is None else normalised(value, element_of(info))
    if kind == "seq":
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"The input '{info.name}' is a {info.type}: pass a list of arrays.")
        return [normalised(one, element_of(info)) for one in value]
    if kind == "map":
        return _map_of(value, info)
    if value is None:
        raise InvalidInput(f"The input '{info.name}' ({info}) is None: pass an array.")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _legible(value, info)
    return _array_of(value, info)


def _map_of(value: Any, info: ValueInfo) -> Map:
    """A dict with its keys in order, so that the order in which they came makes no new program."""
    whole = info.type and "map(int64" in info.type
    kinds = (int, np.integer) if whole else str
    if not isinstance(value, Mapping) or not all(isinstance(key, kinds) for key in value):
        named = "integers" if whole else "strings"
        raise InvalidInput(f"The input '{info.name}' is a {info.type}: pass a dict from {named}.")
    keys = sorted(value)
    return Map(tuple(keys), _array_of([value[key] for key in keys], element_of(info)))


def element_of(info: ValueInfo) -> ValueInfo:
    """What is inside a sequence, an optional or a map."""
    inner = (info.type or "").partition("(")[2][:-1]
    if (info.type or "").startswith("map("):
        inner = inner.partition(",")[2]
    return ValueInfo(info.name, inner, dtype_of_type(inner), None)


def leaf_of(info: ValueInfo) -> ValueInfo:
    """What each array inside an input must be."""
    while (info.type or "").startswith(("optional(", "seq(", "map(")):
        info = element_of(info)
    return info


def _legible(value: Any, info: ValueInfo) -> Any:
    try:
        hash((tuple(value.shape), value.dtype))
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(value).__name__}, does not say its shape and dtype "
            f"({_first_line(error)}): pass an array."
        ) from None
    return value


def _array_of(value: Any, info: ValueInfo) -> Any:
    try:
        array = np.asarray(value) if info.dtype != object else np.asarray(value, dtype=object)
        if info.dtype is None:
            return array
        found, wanted = kind_of(array.dtype), kind_of(info.dtype)
        if array.size and found != wanted and (found == "other" or found in _LOSES.get(wanted, ())):
            raise TypeError(f"{array.dtype} does not become {short_name(info.dtype)} without loss")
        return np.asarray(value, dtype=info.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"The input '{info.name}' ({info}) cannot be made an array of what was passed, "
            f"a {type(value).__name__}: {_first_line(error)}."
        ) from None


_REAL = ("real floating", "complex floating")
_LOSES = {
    "bool": ("signed integer", "unsigned integer", *_REAL),
    "signed integer": _REAL,
    "unsigned integer": _REAL,
    "real floating": ("complex floating",),
}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def stand_ins(signature: Any, infos: Sequence[ValueInfo]) -> dict[str, Any]:
    """Arrays for inputs of which a signature says no more than the shape."""
    if not isinstance(signature, Mapping):
        raise InvalidInput(
            f"A signature is a {type(signature).__name__}: pass a dict from names of inputs to "
            'shapes, as in {"x": (1, 8, 48)}.'
        )
    known = {info.name: info for info in infos}
    return {name: _stand_in(value, known.get(name)) for name, value in signature.items()}


def _stand_in(value: Any, info: ValueInfo | None) -> Any:
    """An array for what may be its shape alone, a tuple; all else is what it is."""
    if info is None or info.dtype in (None, np.dtype(object)) or not _is_shape(value):
        return value
    if any(n < 0 for n in value):
        raise InvalidInput(f"The input '{info.name}' cannot have the shape {list(value)}.")
    try:
        return np.zeros(value, info.dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise LimitExceeded(
            f"The input '{info.name}' of shape {list(value)} is too large for an array here: "
            f"{_first_line(error)}. Pass a smaller shape."
        ) from None


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in value
    )


def importer(
    array: Any, info: ValueInfo, backend: Backend, *, copies: bool = False
) -> Convert | None:
    """What makes a caller's array one that programs on `backend` take; None where it is one.

    With `copies` the call may return before its results are there, so that arrays which the
    caller can write to are copied.
    """
    if backend.owns(array) and not isinstance(array, np.ndarray):
        return _widening(array, info, backend)
    if not isinstance(array, np.ndarray):
        if not (hasattr(array, "__dlpack__") or hasattr(array, "__array__")):
            raise InvalidInput(
                f"The input '{info.name}' is a {type(array).__name__}, which is no array that "
                "can be read: pass NumPy, JAX or CuPy arrays, or any with __dlpack__."
            )
        return partial(_entered, backend.adopt, info)
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidInput(
            f"The input '{info.name}' is a masked array, and ONNX has no masks: pass "
            "array.filled(value), or its data."
        )
    if array.dtype.kind in "UT" or array.dtype == object:
        return _strings if array.dtype.kind != "O" else _checked_strings(info)
    if array.dtype.fields is not None or array.dtype.kind in "mMS":
        raise InvalidInput(
            f"The input '{info.name}' has dtype {array.dtype}, which no ONNX type corresponds to."
        )
    # Before a library is asked for it that may not have this type at all.
    check_dtype(Spec(array.shape, array.dtype.newbyteorder("=")), info)
    # A subclass may give operators another meaning, as numpy.matrix does.
    is_plain = array.dtype.isnative and type(array) in (np.ndarray, np.memmap)
    plain = _copied if copies else _plain
    if backend.takes_numpy:
        return None if is_plain and not copies else plain
    return partial(_entered, lambda a: backend.put(plain(a)), info)


def _entered(convert: Convert, info: ValueInfo, array: Any) -> Any:
    try:
        return convert(array)
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(array).__module__}.{type(array).__name__}, cannot "
            f"be read: {_first_line(error)}."
        ) from error


def _widening(array: Any, info: ValueInfo, backend: Backend) -> Convert | None:
    """What to do where the library had no wide type to give: JAX without its 64-bit mode."""
    found = backend.spec(array).dtype
    if info.dtype is None or found == info.dtype or found != backend.narrowed(info.dtype):
        return None
    wide = backend.dtype(info.dtype)
    return lambda array: backend.astype(array, wide)


def exporter(given: Sequence[Any], backend: Backend) -> Convert:
    """What turns a program's arrays into the library of those that the caller passed."""
    foreign = next((array for array in given if not isinstance(array, np.ndarray)), None)
    if foreign is None:
        return partial(_as_numpy, backend)
    if backend.owns(foreign) or backend.is_abstract(foreign):
        return lambda array: _as_native(array, backend)
    into = _maker(foreign)
    return lambda array: _in_library(array, type(foreign), into, backend)


def _as_numpy(backend: Backend, array: Any) -> Any:
    # Of NumPy's arrays and a traced key nothing but traced arrays can come.
    is_there = backend.owns(array) and not backend.is_abstract(array)
    return fetched(array, backend) if is_there else array


def fetched(array: Any, backend: Backend) -> Any:
    """A result as NumPy's array. A library that computes it meanwhile may only fail here."""
    try:
        return backend.fetch(array)
    except Exception as error:
        if array.ndim > MOST_AXES:
            raise LimitExceeded(
                f"A result has {array.ndim} axes, and NumPy's arrays have {MOST_AXES} at most: "
                f"pass arrays of {backend.name}, whose results are not brought to NumPy."
            ) from None
        raise_told(error, "A result could not be computed, or not brought to NumPy", backend)


def _maker(foreign: Any) -> Any:
    """The module that makes arrays like `foreign`: its namespace, or its library."""
    if hasattr(foreign, "__array_namespace__"):
        return foreign.__array_namespace__()
    return sys.modules[type(foreign).__module__.partition(".")[0]]


def _in_library(array: Any, kind: type, library: Any, backend: Backend) -> Any:
    if isinstance(array, kind) or _holds_strings(array):
        return array
    read_only = isinstance(array, np.ndarray) and not array.flags.writeable
    try:
        # DLPack cannot say that an array is read-only.
        return library.from_dlpack(array.copy() if read_only else array)
    except (AttributeError, BufferError, TypeError, RuntimeError, ValueError, AssertionError):
        # Not every library exchanges every type that way; all take NumPy arrays.
        host = fetched(array, backend) if backend.owns(array) else array
        return library.asarray(host) if hasattr(library, "asarray") else host


def _as_native(array: Any, backend: Backend) -> Any:
    if backend.owns(array) or _holds_strings(array):
        return array
    return backend.put(array)


def _strings(array: Any) -> Any:
    return array.astype(object)


def _checked_strings(info: ValueInfo) -> Convert:
    def check(array: Any) -> Any:
        for element in array.ravel():
            if not isinstance(element, str):
                raise InvalidInput(
                    f"The input '{info.name}' is an array of Python objects and holds a "
                    f"{type(element).__name__}: pass numbers in a numeric dtype, text as str."
                )
        return array

    return check


def _plain(array: Any) -> Any:
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def _copied(array: Any) -> Any:
    return np.array(array, dtype=array.dtype.newbyteorder("="), subok=False)


def check_dtype(spec: Spec, info: ValueInfo) -> None:
    """Refuse an array that is not of the declared dtype."""
    if info.dtype is not None and spec.dtype != info.dtype:
        raise InvalidInput(
            f"The input '{info.name}' must be {short_name(info.dtype)}, and got "
            f"{_described(spec)}: convert it with astype, or export the model for that dtype."
        )


def _described(spec: Spec) -> str:
    return f"{short_name(spec.dtype)}{list(spec.shape)}"


def check_input(spec: Spec, info: ValueInfo, sizes: dict[str, int]) -> None:
    """Refuse an array that is not of the declared dtype and shape, with names for free sizes."""
    check_dtype(spec, info)
    shape, given = spec.shape, _described(spec)
    if info.shape is None:
        return
    if len(shape) != len(info.shape):
        raise InvalidInput(
            f"The input '{info.name}' must have {len(info.shape)} dimensions ({info}), and got "
            f"{given} with {len(shape)}."
        )
    for axis, (size, declared) in enumerate(zip(shape, info.shape, strict=True)):
        wanted = sizes.setdefault(declared, size) if isinstance(declared, str) else declared
        if wanted is not None and wanted != size:
            raise InvalidInput(
                f"The input '{info.name}' must have size {wanted} on axis {axis} ({info}), "
                f"and got {given}."
            )


def _holds_strings(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == object
