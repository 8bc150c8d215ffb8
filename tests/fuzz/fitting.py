"""Nodes that make of one value another of a type and shape that an operator asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import DType, number_of
from tests.fuzz.graph import Array
from tests.fuzz.supply import lies_within
from tests.fuzz.values import Value, is_float
from tests.property.strategies import Shape

# Adds a node of one output to the graph, or a leaf; the name of its value.
Emit = Callable[..., str]
Leave = Callable[[Array], str]


class Fitter:
    """Fits values by Cast, Mod, Reshape, Tile and Slice."""

    def __init__(self, values: Mapping[str, Value], emit: Emit, leave: Leave, opset: int) -> None:
        self.values, self.emit, self.leave, self.opset = values, emit, leave, opset

    def fit(self, name: str, dtype: DType, shape: Shape, values: Array) -> str | None:
        held = self.values[name]
        size = held.data.size
        if not size or not prod(shape) or self.opset < 10:
            return None
        if held.data.dtype != dtype:
            if not (held.exact and _converts(held.data, dtype)):
                return None
            name = self.emit("Cast", name, to=number_of(dtype))
        if not lies_within(self.values[name].data, values):
            if not _is_range(values, dtype) or self.values[name].data.dtype.itemsize < 4:
                return None
            name = self.emit("Mod", name, self.leave(np.array(len(values), dtype)))
            if not lies_within(self.values[name].data, values):
                return None
        return self._shaped(name, shape)

    def _shaped(self, name: str, shape: Shape) -> str:
        size, wanted = self.values[name].data.size, prod(shape)
        if self.values[name].data.shape == shape:
            return name
        if size != wanted:
            name = self.emit("Reshape", name, self._ints(-1))
            if size < wanted:
                name = self.emit("Tile", name, self._ints(-(-wanted // size)))
            if wanted % size:
                name = self.emit("Slice", name, self._ints(0), self._ints(wanted))
        return self.emit("Reshape", name, self._ints(*shape))

    def _ints(self, *values: int) -> str:
        return self.leave(np.array(values, np.int64))


def _converts(array: Array, dtype: DType) -> bool:
    """Whether a cast changes no element."""
    if dtype.kind in "Ob" or array.dtype.kind in "Ob":
        return False
    plain = all(isdtype(d, "integral") or is_float(d) for d in (array.dtype, dtype))
    if not plain or min(array.dtype.itemsize, dtype.itemsize) < 1:
        return False
    with np.errstate(all="ignore"):
        there = array.astype(dtype)
        return np.array_equal(there.astype(np.float64), array.astype(np.float64))


def _is_range(values: Array, dtype: DType) -> bool:
    """Whether a pool holds indices: integers from 0, or from below it, on."""
    if dtype.name not in ("int32", "int64") or not values.size:
        return False
    return 0 in values and int(values.max()) - int(values.min()) == len(values) - 1
