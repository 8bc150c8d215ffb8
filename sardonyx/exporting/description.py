"""The description of an exported program: its JSON form, and its validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.errors import InvalidModel
from sardonyx.exporting.archive import Content
from sardonyx.exporting.size_expressions import evaluated, holds, is_valid, names_in
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.standard.types import ELEMENT_TYPES, dtype_of_type

LONGEST_PLATFORM = 32

_DTYPES = {e.dtype.name: e.dtype for e in ELEMENT_TYPES.values() if e.dtype != object}


@dataclass(frozen=True)
class Description:
    """The inputs and outputs of a program, conditions on their sizes, and the arrays it needs."""

    title: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    bounds: tuple[str, ...]
    # The largest requested size for each name.
    largest: Mapping[str, int]
    platforms: tuple[str, ...]
    draws: bool
    weights: tuple[str, ...]
    constants: tuple[str, ...]
    metadata: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the description as JSON data."""
        inputs, outputs = (list(map(_as_json, infos)) for infos in (self.inputs, self.outputs))
        return {**vars(self), "inputs": inputs, "outputs": outputs}


def _as_json(info: ValueInfo) -> dict[str, Any]:
    return {"name": info.name, "type": info.type, "shape": list(info.shape or ())}


def described(content: Content) -> tuple[Description, dict[str, np.ndarray[Any, Any]]]:
    """Return the validated description in an archive, and its arrays by name."""
    reader = _Reader(content)
    inputs = tuple(map(reader.info, reader.several("inputs", dict)))
    description = Description(
        title=reader.one("title", str),
        inputs=inputs,
        outputs=tuple(map(reader.info, reader.several("outputs", dict))),
        bounds=tuple(reader.bound(text, inputs) for text in reader.several("bounds", str)),
        largest=reader.mapping("largest", int),
        platforms=tuple(map(reader.platform, reader.several("platforms", str))),
        draws=reader.one("draws", bool),
        weights=tuple(reader.several("weights", str)),
        constants=tuple(reader.several("constants", str)),
        metadata=reader.mapping("metadata", str),
    )
    arrays = dict(map(reader.array, reader.several("arrays", dict)))
    names = [*description.weights, *description.constants]
    if sorted(names) != sorted(arrays):
        raise reader.wrong("its arrays differ from those that the program takes")
    return description, arrays


class _Reader:
    """Reads the fields of a description, and raises `InvalidModel` for invalid ones."""

    def __init__(self, content: Content) -> None:
        self.content = content

    def wrong(self, what: str) -> InvalidModel:
        return InvalidModel(
            f"The exported program in {self.content.origin} contradicts itself: {what}. It is "
            "damaged, or was written by something else: export it again."
        )

    def one(self, key: str, kind: type, within: Mapping[str, Any] | None = None) -> Any:
        value = (self.content.description if within is None else within).get(key)
        if type(value) is not kind:
            raise self.wrong(f"its '{key}' is {value!r:.100}")
        return value

    def several(self, key: str, kind: type, within: Mapping[str, Any] | None = None) -> list[Any]:
        values = self.one(key, list, within)
        if any(type(value) is not kind for value in values):
            raise self.wrong(f"its '{key}' are {values!r:.100}")
        return list(values)

    def info(self, entry: Mapping[str, Any]) -> ValueInfo:
        kind = self.one("type", str, entry)
        dtype = dtype_of_type(kind) if kind.startswith("tensor(") else None
        if dtype is None or dtype.kind == "O":
            raise self.wrong(f"a tensor's type is {kind!r:.100}")
        shape = self.one("shape", list, entry)
        return ValueInfo(self.one("name", str, entry), kind, dtype, tuple(map(self._size, shape)))

    def _size(self, size: Any) -> int | str:
        if type(size) is int and size >= 0:
            return size
        if type(size) is not str or not is_valid(evaluated, size):
            raise self.wrong(f"a size is {size!r:.100}")
        return size

    def mapping(self, key: str, kind: type) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self.one(key, dict)
        if any(type(value) is not kind for value in values.values()):
            raise self.wrong(f"its '{key}' are {values!r:.100}")
        return values

    def platform(self, name: str) -> str:
        if not name.isidentifier() or not name.isascii() or len(name) > LONGEST_PLATFORM:
            raise self.wrong(f"a platform is {name!r:.100}")
        return name

    def bound(self, text: str, inputs: Sequence[ValueInfo]) -> str:
        """Return a comparison of sizes, which must use only names of the inputs' sizes."""
        names = {n for i in inputs for d in i.shape or () for n in names_in(str(d))}
        if not is_valid(holds, text) or not names.issuperset(names_in(text)):
            raise self.wrong(f"a bound of sizes is {text!r:.100}")
        return text

    def array(self, entry: Mapping[str, Any]) -> tuple[str, np.ndarray[Any, Any]]:
        name, kind = self.one("name", str, entry), self.one("dtype", str, entry)
        shape, offset = self.several("shape", int, entry), self.one("offset", int, entry)
        if kind not in _DTYPES or any(size < 0 for size in shape) or len(shape) > 32:
            raise self.wrong(
                f"the array '{name}' has the dtype {kind:.100} and the shape {shape!r:.100}"
            )
        dtype = _DTYPES[kind]
        size = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset + size > self.content.weights.size:
            raise self.wrong(f"the array '{name}' lies outside the weights")
        data = self.content.weights[offset : offset + size]
        if dtype == np.bool_ and np.any(data > 1):
            raise self.wrong(f"the array '{name}' has bytes that are not booleans")
        array = data.view(dtype).reshape(shape)
        array.flags.writeable = False
        return name, array
