"""The kinds of value in a trace.

A name in a graph is bound to one of these. Two names that are bound to the same object are aliases.
A sequence is a Python list of values, and an absent optional is None. The keys of a map are static,
and its values are one array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.graph.standard.types import short_name
from sardonyx.ops.definition import Map, MapRows


def is_finite(value: np.ndarray[Any, Any]) -> bool:
    """Whether an array has neither infinities nor NaN."""
    if kind_of(value.dtype) not in ("real floating", "complex floating"):
        return True
    with np.errstate(all="ignore"):
        # The sum needs no memory, but it can overflow where every element is finite.
        return bool(np.isfinite(np.sum(value)) or np.isfinite(value).all())


def is_zero(value: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are 0, and none is -0."""
    return not value.tobytes().strip(b"\0")


@dataclass(frozen=True, eq=False, slots=True)
class Static:
    """A value known while tracing: a read-only NumPy array on the host, absent from the program."""

    value: np.ndarray[tuple[int, ...], np.dtype[Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Device:
    """A value computed on the device at each call; a trace knows only its shape and dtype."""

    register: int
    spec: Spec

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.spec.dtype


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Weight(Device):
    """An initializer on the device, whose data can also be read on the host."""

    name: str = field(kw_only=True)
    host: np.ndarray[Any, Any] = field(kw_only=True, repr=False)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Hosted(Device):
    """A value computed on the host at each call: strings."""


Value: TypeAlias = "Static | Device | Map | MapRows | list[Value] | None"


def static(value: Any) -> Static:
    """Return `value` as a static value, read-only, since several programs can share it."""
    array = np.asarray(value)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return Static(array)


def as_value(value: Any) -> Value:
    """Convert a NumPy array, from an op that runs subgraphs, to a static value; keep all others."""
    return static(value) if isinstance(value, np.ndarray) else value


def leaves(value: Any) -> list[Any]:
    """Return the arrays inside a nested value, in order: those of a trace, or a caller's."""
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    if isinstance(value, (Map, MapRows)):
        return leaves(value.values)
    return [] if value is None else [value]


def digest(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return a key of the contents of a host value."""
    if value.dtype == object:
        return value.dtype, value.shape, tuple(map(exact, value.ravel().tolist()))
    return value.dtype, value.shape, value.tobytes()


def exact(value: Any) -> Any:
    """Return a key that is equal only for values of the same type with the same bits.

    In Python 0.0 equals -0.0; 1, 1.0 and True are equal; and NaN does not equal itself.

    >>> exact(0.0) == exact(-0.0), exact((1, True)) == exact((1, 1)), exact(2) == exact(2)
    (False, False, True)
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, tuple):
        return kind, *_exact_elements(value)
    if kind in _BITS:
        return kind, _BITS[kind](value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, np.ndarray):
        return digest(value)
    names = _compared(kind)
    return (kind, *[exact(getattr(value, name)) for name in names]) if names else value


def _exact_elements(values: tuple[Any, ...]) -> Iterable[Any]:
    """Return a key for each element; one for all of them if they are floats, as in a forest."""
    types = set(map(type, values))
    if types == {float}:
        return float, np.asarray(values).tobytes()
    return values if types <= _PLAIN else map(exact, values)


# Types whose values equal no value of another type, except the types in _BITS.
_PLAIN = frozenset((int, str, bytes, type(None), FunctionType))

# Types whose values Python compares as equal to values of other types, with their exact bits.
_BITS: Mapping[Any, Callable[[Any], Any]] = {
    bool: int,
    float: struct.Struct("<d").pack,
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
}


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """Return the fields that a dataclass compares; none if it compares by identity."""
    if not is_dataclass(kind) or kind.__eq__ is object.__eq__:
        return ()
    return tuple(field.name for field in fields(kind) if field.compare)


def spec_text(spec: Spec) -> str:
    """Return a dtype and shape for messages and listings, such as `float32[2, 3]`."""
    return f"{short_name(spec.dtype)}{list(spec.shape)}"
