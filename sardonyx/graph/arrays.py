"""Arrays come back as they went in: telling libraries apart, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend, Spec, kind_of
from sardonyx.errors import InvalidInput
from sardonyx.graph.structure import ValueInfo
from sardonyx.graph.types import dtype_of_type, short_name

Convert = Callable[[Any], Any]


def normalised(value: Any, info: ValueInfo) -> Any:
    """What a caller passed, as arrays: lists and numbers become NumPy arrays of the declared type."""
    kind = (info.type or "").partition("(")[0]
    if kind == "optional":
        return None if value is None else normalised(value, element_of(info))
    if kind == "seq":
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"The input '{info.name}' is a {info.type}: pass a list of arrays.")
        return [normalised(one, element_of(info)) for one in value]
    if value is None:
        raise InvalidInput(f"The input '{info.name}' ({info}) is None: pass an array.")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _legible(value, info)
    return _array_of(value, info)


def element_of(info: ValueInfo) -> ValueInfo:
    """What is inside a sequence or an optional."""
    inner = (info.type or "").partition("(")[2][:-1]
    return ValueInfo(info.name, inner, dtype_of_type(inner), None)


def leaf_of(info: ValueInfo) -> ValueInfo:
    """What each array inside an input must be."""
    while (info.type or "").startswith(("optional(", "seq(")):
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


def importer(array: Any, info: ValueInfo, backend: Backend) -> Convert | None:
    """What makes a caller's array one that programs on `backend` take; None where it is one."""
    if backend.owns(array) and not isinstance(array, np.ndarray):
        return None
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
    # A subclass may give operators another meaning, as numpy.matrix does.
    is_plain = array.dtype.isnative and type(array) in (np.ndarray, np.memmap)
    if backend.takes_numpy:
        return None if is_plain else _plain
    return partial(_entered, lambda a: backend.put(_plain(a)), info)


def _entered(convert: Convert, info: ValueInfo, array: Any) -> Any:
    try:
        return convert(array)
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(array).__module__}.{type(array).__name__}, cannot "
            f"be read: {_first_line(error)}."
        ) from error


def exporter(given: Sequence[Any], backend: Backend) -> Convert:
    """What turns a program's arrays into the library of those that the caller passed."""
    foreign = next((array for array in given if not isinstance(array, np.ndarray)), None)
    if foreign is None:
        return lambda array: backend.fetch(array) if backend.owns(array) else array
    if backend.owns(foreign) or backend.is_abstract(foreign):
        return lambda array: _as_native(array, backend)
    make = _maker(foreign)
    return lambda array: make(_exportable(array, backend))


def _maker(foreign: Any) -> Convert:
    if hasattr(foreign, "__array_namespace__"):
        namespace = foreign.__array_namespace__()
    else:
        namespace = sys.modules[type(foreign).__module__.partition(".")[0]]
    from_dlpack = getattr(namespace, "from_dlpack", None)
    asarray = getattr(namespace, "asarray", None)

    def make(array: Any) -> Any:
        if type(array) is type(foreign) or array.dtype == object:
            return array
        for convert in (from_dlpack, asarray):
            if convert is not None:
                try:
                    return convert(array)
                except (BufferError, TypeError, RuntimeError, ValueError, AssertionError):
                    continue
        return array

    return make


def _exportable(array: Any, backend: Backend) -> Any:
    if not isinstance(array, np.ndarray) or array.flags.writeable or array.dtype == object:
        return array
    return array.copy()  # DLPack cannot say that an array is read-only.


def _as_native(array: Any, backend: Backend) -> Any:
    if backend.owns(array) or array.dtype == object:
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


def check_input(spec: Spec, info: ValueInfo, sizes: dict[str, int]) -> None:
    """Refuse an array that is not of the declared dtype and shape, with names for free sizes."""
    shape, dtype = spec
    given = f"{short_name(dtype)}{list(shape)}"
    if info.dtype is not None and dtype != info.dtype:
        raise InvalidInput(
            f"The input '{info.name}' must be {short_name(info.dtype)}, and got {given}: "
            "convert it with astype, or export the model for that dtype."
        )
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
