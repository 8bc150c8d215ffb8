"""The kinds of value that tracing tells apart.

A name in a graph is bound to one of these. Two names bound to the very same object are aliases:
that is all an alias is. A sequence is a Python list of values, an absent optional is None; a map's
keys are known, and its values are one array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
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
    """Whether an array holds neither infinities nor NaN."""
    if kind_of(value.dtype) not in ("real floating", "complex floating"):
        return True
    with np.errstate(all="ignore"):
        # The sum reads the array once and writes nothing. It may overflow where no element does.
        return bool(np.isfinite(np.sum(value)) or np.isfinite(value).all())


@dataclass(frozen=True, eq=False, slots=True)
class Static:
    """Known while tracing: a read-only NumPy array on the host, gone from the program."""

    value: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.value.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.value.dtype
        return dtype


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Device:
    """Computed on the device at each call; while tracing only its shape and dtype are known."""

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
    """Computed on the host at each call: strings."""


Value: TypeAlias = "Static | Device | Map | MapRows | list[Value] | None"


def static(value: Any) -> Static:
    """`value` as a static value. It is marked read-only, since many programs may share it."""
    array = np.asarray(value)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return Static(array)


def as_value(value: Any) -> Value:
    """What an op that runs subgraphs has computed itself is static; all else is a value already."""
    return static(value) if isinstance(value, np.ndarray) else value


def leaves(value: Value) -> list[Static | Device]:
    """The arrays inside a value, in order."""
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    if isinstance(value, (Map, MapRows)):
        return leaves(value.values)
    return [] if value is None else [value]


def digest(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """What tells one host value from another."""
    if value.dtype == object:
        return value.dtype, value.shape, tuple(map(exact, value.ravel().tolist()))
    return value.dtype, value.shape, value.tobytes()


def exact(value: Any) -> Any:
    """A key for a value, equal for one of the same type and the same bits alone.

    To Python 0.0 and -0.0 are equal, and so are 1, 1.0 and True; and no NaN is equal to itself.

    >>> exact(0.0) == exact(-0.0), exact((1, True)) == exact((1, 1)), exact(2) == exact(2)
    (False, False, True)
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, tuple):
        return kind, *[exact(one) for one in value]
    if kind in _BITS:
        return kind, _BITS[kind](value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, np.ndarray):
        return digest(value)
    names = _compared(kind)
    return (kind, *[exact(getattr(value, name)) for name in names]) if names else value


# Of these types no value is equal to one of another type, but for those listed below.
_PLAIN = frozenset((int, str, bytes, type(None), FunctionType))

# Of the types whose values Python takes for those of others.
_BITS: Mapping[Any, Callable[[Any], Any]] = {
    bool: int,
    float: struct.Struct("<d").pack,
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
}


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """The fields by which values of a dataclass are equal; none where only identity counts."""
    if not is_dataclass(kind) or kind.__eq__ is object.__eq__:
        return ()
    return tuple(field.name for field in fields(kind))


def spec_text(spec: Spec) -> str:
    """A shape and dtype as messages and listings write it."""
    return f"{short_name(spec.dtype)}{list(spec.shape)}"
