"""Names for what a segment does, the same in every process that runs this version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

import numpy as np

from sardonyx.graph.calls import HOLE


def name_of(key: Any) -> str | None:
    """A name for a key; None where it holds what may mean something else elsewhere."""
    hashed = hashlib.sha256()
    try:
        for part in _parts(key):
            hashed.update(part)
            hashed.update(b"\0")
    except _Unnamed:
        return None
    return hashed.hexdigest()


class _Unnamed(Exception):  # noqa: N818  (a signal, not an error)
    """Something whose meaning cannot be told by a name."""


def _parts(value: Any) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, bytes):
        yield value
    elif value is None or isinstance(value, (bool, int, float, complex, str, np.generic)):
        yield repr(value).encode()
    elif isinstance(value, np.dtype):
        yield value.name.encode()
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    elif value is HOLE:
        yield b"hole"
    else:
        for part in _members(value):
            yield from _parts(part)
        yield b"end"


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        yield from value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield getattr(value, field.name)
    else:
        raise _Unnamed


def _of_function(function: FunctionType) -> Iterator[bytes]:
    """Where a function of the package's own stands, and what it closes over."""
    if not function.__module__.startswith("sardonyx."):
        raise _Unnamed
    line = function.__code__.co_firstlineno
    yield f"{function.__module__}.{function.__qualname__}:{line}".encode()
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents)
