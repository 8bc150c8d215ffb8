"""Names for what a segment does, the same in every process that runs this version."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

import numpy as np

from sardonyx.graph.calls import HOLE
from sardonyx.graph.values import digest

# Of arrays that are larger no copy is made.
LARGE = 2**16


def name_of(key: Any) -> str | None:
    """A name for a key; None where it holds what may mean something else elsewhere."""
    written = io.BytesIO()
    try:
        _Writer(written).dump(key)
    except _Unnamed:
        return None
    return hashlib.sha256(written.getvalue()).hexdigest()


class _Unnamed(Exception):  # noqa: N818  (a signal, not an error)
    """Something whose meaning cannot be told by a name."""


class _Writer(pickle.Pickler):
    """Writes keys down as bytes that nobody reads: plain values as pickle does, others as these."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        # Equal keys are written alike, whichever of their parts are one object.
        self.fast = True

    def reducer_override(self, value: Any) -> Any:
        if value is tuple:
            return NotImplemented
        return tuple, ((type(value).__name__, *_parts(value)),)


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.dtype):
        return (value.name,)
    if isinstance(value, (str, int, float, complex, np.generic)):
        return (repr(value),)
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    if isinstance(value, np.ndarray):
        value = _parts_of_array(value)
    if isinstance(value, (tuple, list)):
        return tuple(value)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(getattr(value, field.name) for field in fields(value))
    if value is HOLE:
        return ()
    raise _Unnamed


def _parts_of_array(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    if array.nbytes < LARGE or array.dtype == object:
        return digest(array)
    content = np.ascontiguousarray(array).view(np.uint8)
    return array.dtype, array.shape, hashlib.sha256(content.data).digest()


def _parts_of_function(function: FunctionType) -> tuple[Any, ...]:
    """Where a function of the package's own stands, and what it closes over."""
    if not function.__module__.startswith("sardonyx."):
        raise _Unnamed
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    return function.__module__, function.__qualname__, function.__code__.co_firstlineno, cells
