"""Names for compiled segments, the same in every process with this version."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

import numpy as np

from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.values.kinds import digest

# Larger arrays are hashed in place, without a copy.
LARGE = 2**16


def name_of(key: Any) -> str | None:
    """Return a name for a key; None if part of it could differ between processes."""
    written = io.BytesIO()
    try:
        _Writer(written).dump(key)
    except _Unnamed:
        return None
    return hashlib.sha256(written.getvalue()).hexdigest()


# Packages whose versions or contents are part of a cache folder's identity.
_KNOWN = ("builtins", "ml_dtypes", "numpy", "sardonyx")


class _Unnamed(Exception):  # noqa: N818  (a signal, not an error)
    """An object without a stable name."""


class _Writer(pickle.Pickler):
    """Turns keys into bytes, which nobody reads. All objects become tuples of plain values."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        # Without references between objects, equal keys give equal bytes.
        self.fast = True

    def reducer_override(self, value: Any) -> Any:
        if value is tuple:
            return NotImplemented
        return tuple, ((*_name_of_type(type(value)), *_parts(value)),)


def _parts(value: Any) -> tuple[Any, ...]:
    for kind, parts in _PARTS.items():
        if isinstance(value, kind):
            return parts(value)
    if is_dataclass(value):
        return tuple(getattr(value, field.name) for field in fields(value) if field.compare)
    if value is HOLE:
        return ()
    raise _Unnamed


def _name_of_type(kind: type[Any]) -> tuple[str, str]:
    if kind.__module__.partition(".")[0] not in _KNOWN:
        raise _Unnamed
    return kind.__module__, kind.__qualname__


def _parts_of_array(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    if array.nbytes < LARGE or array.dtype == object:
        return digest(array)
    content = np.ascontiguousarray(array).view(np.uint8)
    return array.dtype, array.shape, hashlib.sha256(content.data).digest()


def _parts_of_function(function: FunctionType) -> tuple[Any, ...]:
    """Return the place of a function in this package, with its closure and defaults."""
    if not function.__module__.startswith("sardonyx."):
        raise _Unnamed
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
    return *place, cells, function.__defaults__, function.__kwdefaults__


# The first class that fits is used: NumPy's float64 is a float too.
_PARTS: Mapping[Any, Callable[[Any], tuple[Any, ...]]] = {
    np.dtype: lambda dtype: (dtype.name, dtype.byteorder),
    np.generic: lambda scalar: (scalar.dtype, scalar.tobytes()),
    np.ndarray: _parts_of_array,
    (str, int, float, complex): lambda value: (repr(value),),
    (tuple, list): tuple,
    type: _name_of_type,
    FunctionType: _parts_of_function,
}
