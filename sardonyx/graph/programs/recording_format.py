"""Recordings as bytes, and back, in a plain format that holds no code.

The bytes are a table in JSON and, after it, the contents of arrays. Each entry of the table is a
plain value, or a tag and the places of the entries before it of which it consists, so that what is
shared is written once. Tags stand for the classes listed here and for nothing else. Nodes and
weights are written by their place and name, and functions by where they stand among those of the
operators: these are the reader's own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from itertools import chain
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.executable import Executable, Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.graph.ir import Node
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Pack
from sardonyx.graph.tracing.op_call import HOLE, Drawing, Holes, OpCall
from sardonyx.graph.tracing.steps import Block, Embedded, Segment, Step
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.values.kinds import Device, Hosted, Static, Weight
from sardonyx.graph.values.params import WeightStore
from sardonyx.ops import OPS
from sardonyx.ops.definition import Map, MapRows, OnBackend

# What recordings consist of, besides the backend's own classes.
CLASSES: tuple[type[Any], ...] = (
    Activation, Block, BodyCall, Device, Drawing, Embedded, Epilogue, Holes, Hosted, Map, MapRows,
    OpCall, Pack, Spec, Stage, Static, Step,
)  # fmt: skip

_PLAIN = (bool, int, str, type(None))
_LENGTH = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")


class Unwritable(Exception):  # noqa: N818  (a signal, not an error)
    """Something that belongs to this process alone."""


def written(value: Any, nodes: Sequence[Node], classes: Iterable[type[Any]]) -> bytes:
    """The value as bytes; `Unwritable` if there is anything in it that another process lacks."""
    writer = _Writer(nodes, (*CLASSES, *classes))
    writer.place(value)
    table = json.dumps(writer.table, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(table)), table, *writer.contents))


def read(
    content: bytes, nodes: Sequence[Node], params: WeightStore, classes: Iterable[type[Any]]
) -> Any:
    """The value that `written` wrote. It raises whatever it likes if it did not write it."""
    (length,) = _LENGTH.unpack_from(content)
    arrays = _LENGTH.size + length
    table = json.loads(content[_LENGTH.size : arrays])
    return _Reader(nodes, params, (*CLASSES, *classes), content[arrays:]).value(table)


class _Writer:
    def __init__(self, nodes: Sequence[Node], classes: Iterable[type[Any]]) -> None:
        self.table: list[Any] = []
        self.contents: list[bytes] = []
        self._length = 0
        self._places: dict[Any, int] = {}
        # So that no other object gets the identity of one that was written.
        self._written: list[Any] = []
        self._nodes = {id(node): place for place, node in enumerate(nodes)}
        self._classes = frozenset(classes)

    def place(self, value: Any) -> int:
        """The place in the table of a value, which is written there unless it is already."""
        kind = type(value)
        if kind in _PLAIN:
            return self._at((kind, value), value)
        found = self._places.get(id(value))
        if found is None:
            found = self._places[id(value)] = self._new(value, kind)
            self._written.append(value)
        return found

    def _new(self, value: Any, kind: type[Any]) -> int:
        if kind in _TYPES:
            return _TYPES[kind](self, value)
        if isinstance(value, (np.dtype, np.ndarray, np.generic)):
            return self._of_numpy(value)
        if isinstance(value, (FunctionType, OnBackend)):
            return self._alike(*self._function(value))
        if value is HOLE:
            return self._alike("hole")
        if kind not in self._classes:
            raise Unwritable(kind)
        return self._entry(kind.__name__, *self._all(_parts(value)))

    def _all(self, values: Iterable[Any]) -> Iterable[int]:
        return [self.place(value) for value in values]

    def _node(self, node: Node) -> int:
        if id(node) not in self._nodes:
            raise Unwritable(node)
        return self._alike("node", self.place(self._nodes[id(node)]))

    def _of_numpy(self, value: Any) -> int:
        if isinstance(value, np.dtype):
            if _dtype(value.name) != value:
                raise Unwritable(value)
            return self._alike("dtype", self.place(value.name))
        dtype, shape = self.place(value.dtype), self.place(value.shape)
        if value.dtype != object:
            kind = "scalar" if isinstance(value, np.generic) else "array"
            return self._entry(kind, dtype, shape, self._bytes(value.tobytes()))
        return self._entry("objects", shape, *self._all(value.ravel().tolist()))

    def _function(self, function: Any) -> tuple[Any, ...]:
        meaning = _meanings().get(function)
        if meaning is not None:
            return "meaning", *self._all(meaning)
        if not isinstance(function, FunctionType):
            raise Unwritable(function)
        where = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        if _function(*where) is not function:
            raise Unwritable(function)
        return "function", *self._all(where)

    def _bytes(self, content: bytes) -> int:
        if content in self._places:
            return self._places[content]
        start, self._length = self._length, self._length + len(content)
        self.contents.append(content)
        place = self._entry("bytes", *self._all((start, self._length)))
        self._places[content] = place
        return place

    def _entry(self, tag: str, *places: int) -> int:
        return self._append([tag, *places])

    def _alike(self, tag: str, *places: int) -> int:
        """An entry for something that may stand for all that is equal to it."""
        return self._at((tag, *places), [tag, *places])

    def _at(self, key: Any, entry: Any) -> int:
        if key not in self._places:
            self._places[key] = self._append(entry)
        return self._places[key]

    def _append(self, entry: Any) -> int:
        self.table.append(entry)
        return len(self.table) - 1


_TYPES: Mapping[Any, Callable[[_Writer, Any], int]] = {
    tuple: lambda own, value: own._alike("tuple", *own._all(value)),
    list: lambda own, value: own._entry("list", *own._all(value)),
    dict: lambda own, value: own._entry("dict", *own._all(chain.from_iterable(value.items()))),
    float: lambda own, value: own._alike("float", own.place(_DOUBLE.pack(value).hex())),
    bytes: _Writer._bytes,
    Binding: lambda own, value: own._entry("binding", *own._all(_parts_of_binding(value))),
    Executable: lambda own, value: own.place(None),
    Node: _Writer._node,
    Segment: lambda own, value: own._entry("segment", *own._all(_parts_of_segment(value))),
    Weight: lambda own, value: own._entry("weight", *own._all(_parts_of_weight(value))),
}


class _Reader:
    def __init__(
        self,
        nodes: Sequence[Node],
        params: WeightStore,
        classes: Iterable[type[Any]],
        contents: bytes,
    ) -> None:
        self._params = params
        self._contents = contents
        self._makers: dict[str, Callable[..., Any]] = {
            "tuple": lambda *parts: parts,
            "list": lambda *parts: list(parts),
            "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
            "float": lambda digits: _DOUBLE.unpack(bytes.fromhex(digits))[0],
            "bytes": lambda start, end: self._contents[start:end],
            "dtype": _dtype,
            "array": _array,
            "scalar": lambda dtype, shape, content: _array(dtype, shape, content)[()],
            "objects": _objects,
            "meaning": _meaning,
            "function": _function_that_is,
            "hole": lambda: HOLE,
            "node": nodes.__getitem__,
            "weight": self._weight,
            "segment": _segment,
            "binding": Binding,
        }
        self._makers.update((kind.__name__, kind) for kind in classes)

    def value(self, table: Sequence[Any]) -> Any:
        """The last entry of the table, which is made of those before it."""
        made: list[Any] = []
        for entry in table:
            if type(entry) is list:
                tag, *places = entry
                made.append(self._makers[tag](*[made[place] for place in places]))
            else:
                made.append(entry)
        return made[-1]

    def _weight(self, register: int, spec: Spec, name: str) -> Weight:
        return Weight(register, spec, name=name, host=self._params.host(name))


# -- classes --------------------------------------------------------------------------------------


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass or of a named tuple."""
    return getattr(kind, "_fields", None) or tuple(field.name for field in fields(kind))


def _parts(value: Any) -> Iterable[Any]:
    kind: Any = type(value)
    return (getattr(value, name) for name in _names(kind))


def _parts_of_weight(weight: Weight) -> tuple[Any, ...]:
    return weight.register, weight.spec, weight.name


def _parts_of_segment(segment: Segment) -> tuple[Any, ...]:
    return segment.steps, segment.results, segment.fixed, segment.host


def _segment(steps: Any, results: Any, fixed: Any, host: bool) -> Segment:
    return Segment(steps, results, fixed, host=host)


def _parts_of_binding(binding: Binding) -> tuple[Any, ...]:
    """Without what is on the device, or was made of weights: the reader makes it anew."""
    placed = dict.fromkeys(binding.placed)
    parts = binding.weights, binding.constants, placed, binding.prepared
    return *parts, binding.specs, binding.packs, binding.loose


# -- arrays ---------------------------------------------------------------------------------------


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def _array(dtype: np.dtype[Any], shape: Any, content: bytes) -> np.ndarray[Any, Any]:
    if dtype.hasobject:
        raise TypeError("bytes are no Python objects")
    return np.ndarray(shape, dtype, content)


def _objects(shape: Any, *elements: Any) -> np.ndarray[Any, Any]:
    array = np.empty(len(elements), object)
    array[:] = elements
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


# -- functions ------------------------------------------------------------------------------------


@cache
def _meanings() -> Mapping[Any, tuple[str, str, int]]:
    """The functions of operators: whose they are, and which of its meanings, oldest first."""
    return {
        definition.function: (*key, place)
        for key, op in OPS.items()
        for place, (_, definition) in enumerate(op.definitions)
    }


def _meaning(domain: str, name: str, place: int) -> Any:
    return OPS[domain, name].definitions[place][1].function


def _function_that_is(module: str, name: str, line: int) -> FunctionType:
    found = _function(module, name, line)
    if found is None:
        raise LookupError(f"{name} is no more")
    return found


def _function(module: str, name: str, line: int) -> FunctionType | None:
    """A function that stands in a file of operators, on this line; no other can be reached."""
    if not module.startswith("sardonyx.ops."):
        return None
    found = getattr(import_module(module), name, None)
    if not isinstance(found, FunctionType) or found.__module__ != module:
        return None
    return found if found.__code__.co_firstlineno == line else None
