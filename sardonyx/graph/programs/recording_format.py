"""Recordings as bytes, in a plain format that holds no code.

The bytes are a table in JSON, followed by the contents of arrays. Each entry of the table is a
plain value, or a tag with the places of the earlier entries that it consists of. So shared objects
are written once. A tag stands for one of the classes listed here and for nothing else. Nodes and
weights are written by place and name, and functions by their place among the operators, because the
reader has its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from itertools import chain
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.executable import Executable, Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.backends.operations.numbers import Levels
from sardonyx.graph.ir import Node
from sardonyx.graph.programs.interpretation import Interpretation
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Pack
from sardonyx.graph.tracing.op_call import HOLE, Drawing, Holes, OpCall
from sardonyx.graph.tracing.steps import Block, Embedded, Segment, Step
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.values.kinds import Device, Hosted, Static, Weight
from sardonyx.graph.values.params import WeightStore
from sardonyx.ops import OPS
from sardonyx.ops.definition import Map, MapRows
from sardonyx.ops.on_backend import OnBackend

# The classes of recordings, besides those of the backend.
CLASSES: tuple[type[Any], ...] = (
    Activation, Binding, Block, BodyCall, Device, Drawing, Embedded, Epilogue, Holes, Hosted,
    Levels, Map, MapRows, OpCall, Pack, Spec, Stage, Static, Step,
)  # fmt: skip

_PLAIN = (bool, int, str, type(None))
_LENGTH = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")


class Unwritable(Exception):  # noqa: N818  (a signal, not an error)
    """A value that only this process has."""


def written(value: Any, nodes: Sequence[Node], classes: Iterable[type[Any]]) -> bytes:
    """Return the value as bytes; raise `Unwritable` if another process could not read them."""
    writer = _Writer(nodes, (*CLASSES, *classes))
    writer.place(value)
    table = json.dumps(writer.table, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(table)), table, *writer.contents))


def read(
    content: bytes, nodes: Sequence[Node], params: WeightStore, classes: Iterable[type[Any]]
) -> Any:
    """Return the value that `written` wrote. Other bytes raise any exception."""
    (length,) = _LENGTH.unpack_from(content)
    arrays = _LENGTH.size + length
    build = _builders(nodes, params, content[arrays:])
    build.update((kind.__name__, kind) for kind in (*CLASSES, *classes))
    values: list[Any] = []
    for entry in json.loads(content[_LENGTH.size : arrays]):
        if type(entry) is list:
            tag, *places = entry
            values.append(build[tag](*[values[place] for place in places]))
        else:
            values.append(entry)
    return values[-1]


class _Writer:
    def __init__(self, nodes: Sequence[Node], classes: Iterable[type[Any]]) -> None:
        self.table: list[Any] = []
        self.contents: list[bytes] = []
        self._length = 0
        self._places: dict[Any, int] = {}
        # Keeps what was written alive, so that no other object gets the same id.
        self._written: list[Any] = []
        self._nodes = {id(node): place for place, node in enumerate(nodes)}
        self._classes = frozenset(classes)

    def place(self, value: Any) -> int:
        """Return the place of a value in the table, and write it there the first time."""
        kind = type(value)
        if kind in _PLAIN:
            return self._at((kind, value), value)
        if id(value) not in self._places:
            self._places[id(value)] = self._new(value, kind)
            self._written.append(value)
        return self._places[id(value)]

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

    def _parts_of_step(self, step: Step) -> Iterable[Any]:
        """Return the fields; of the nodes that were fused only those that the model has itself."""
        if not step.fused:
            return _parts(step)
        known = tuple(node for node in step.fused if id(node) in self._nodes)
        return _parts(replace(step, fused=known))

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
        if isinstance(function, FunctionType):
            with suppress(LookupError):
                if _function(*_place_of(function)) is function:
                    return "function", *self._all(_place_of(function))
        raise Unwritable(function)

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
        """Write an entry that stands for all equal values."""
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
    Binding: lambda own, binding: own._entry("Binding", *own._all(_parts_of_binding(binding))),
    Executable: lambda own, value: own.place(None),
    Interpretation: lambda own, value: own.place(None),
    Node: _Writer._node,
    Step: lambda own, step: own._entry("Step", *own._all(own._parts_of_step(step))),
    Segment: lambda own, s: own._entry("segment", *own._all((s.steps, s.results, s.fixed, s.host))),
    Weight: lambda own, w: own._entry("weight", *own._all((w.register, w.spec, w.name))),
}


def _builders(
    nodes: Sequence[Node], params: WeightStore, contents: bytes
) -> dict[str, Callable[..., Any]]:
    """Return for each tag the function that builds its value from those of earlier entries."""
    return {
        "tuple": lambda *parts: parts,
        "list": lambda *parts: list(parts),
        "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
        "float": lambda digits: _DOUBLE.unpack(bytes.fromhex(digits))[0],
        "bytes": lambda start, end: contents[start:end],
        "dtype": _dtype,
        "array": _array,
        "scalar": lambda dtype, shape, content: _array(dtype, shape, content)[()],
        "objects": _objects,
        "meaning": lambda domain, name, place: OPS[domain, name].definitions[place][1].function,
        "function": _function,
        "hole": lambda: HOLE,
        "node": nodes.__getitem__,
        "weight": lambda register, spec, name: Weight(
            register, spec, name=name, host=params.host(name)
        ),
        "segment": lambda steps, results, fixed, host: Segment(steps, results, fixed, host=host),
    }


# -- classes --------------------------------------------------------------------------------------


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a named tuple."""
    return getattr(kind, "_fields", None) or tuple(
        field.name for field in fields(kind) if field.init
    )


def _parts(value: Any) -> Iterable[Any]:
    kind: Any = type(value)
    return (getattr(value, name) for name in _names(kind))


def _parts_of_binding(binding: Binding) -> Iterable[Any]:
    """Return the fields without device arrays and prepared weights, which the reader computes."""
    return _parts(replace(binding, placed=dict.fromkeys(binding.placed), _bound=[]))


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
    """Return for each function of an operator its domain, name and number, the oldest first."""
    return {
        definition.function: (*key, place)
        for key, op in OPS.items()
        for place, (_, definition) in enumerate(op.definitions)
    }


def _function(module: str, name: str, line: int) -> FunctionType:
    """Return the function on this line of a file of operators; no other can be reached."""
    if module.startswith("sardonyx.ops."):
        function = getattr(import_module(module), name, None)
        if isinstance(function, FunctionType) and _place_of(function) == (module, name, line):
            return function
    raise LookupError(f"no function of an operator is {name} on line {line} of {module}")


def _place_of(function: FunctionType) -> tuple[str, str, int]:
    return function.__module__, function.__qualname__, function.__code__.co_firstlineno
