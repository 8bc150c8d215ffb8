"""Which floats of a model become another type, `to_jax(..., dtype=)`, and which stay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.checking.initializer_dependencies import initializers_behind
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo, every_node, names_read
from sardonyx.graph.standard.types import dtype_of, type_name
from sardonyx.ops.definition import Parameter
from sardonyx.to_jax.phases import phases_of

DType = np.dtype[Any]

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# By name, because NumPy takes None for float64 where it compares dtypes.
FLOATS: Mapping[str, DType] = {each.name: each for each in (BFLOAT16, FLOAT16, FLOAT32, FLOAT64)}


def float_type(dtype: Any) -> DType:
    """Return the float type that an argument `dtype` means, by any of its names.

    >>> import jax.numpy as jnp
    >>> float_type("bfloat16") == float_type(jnp.bfloat16) == BFLOAT16
    True
    """
    try:
        found = None if dtype is None else np.dtype(dtype)
    except Exception:  # An array, or a text of a user's own, may raise anything.
        found = None
    if found is None or found.name not in FLOATS:
        shown = ", ".join(f'"{name}"' for name in FLOATS)
        raise InvalidInput(f"'dtype' is {dtype!r:.100}: pass one of {shown}, or None.")
    return FLOATS[found.name]


@dataclass(frozen=True, eq=False, slots=True)
class Casting:
    """A float type for a model, the types that give way to it, and what is exempt."""

    dtype: DType
    # The type that the model multiplies in, as it was written.
    own: DType
    # The types whose values get the new type.
    replaced: frozenset[DType]
    # Nodes that keep their types, and initializers.
    exact: frozenset[Node]
    kept: frozenset[str]

    @classmethod
    def of(cls, source: Source, dtype: DType) -> Casting:
        """Return the casting of a model to a type.

        Beside weights of 16 bits, float32 is there for exactness, and so it stays.
        """
        own = _own_type(source)
        stays = own.itemsize == 2
        replaced = {t for t in FLOATS.values() if not stays or t.itemsize <= max(2, dtype.itemsize)}
        phases = phases_of(source)
        kept = phases.initializers | initializers_behind(source, is_quantization_scale)
        return cls(dtype, own, frozenset(replaced - {dtype}), phases.nodes, kept)

    # -- types ------------------------------------------------------------------------------------

    def new(self, dtype: DType | None) -> DType | None:
        """Return the type that values of a type get."""
        return self.dtype if dtype is not None and dtype in self.replaced else dtype

    def written(self, dtype: DType) -> DType:
        """Return the type that a value of a type has in the model as it was written."""
        return self.own if dtype == self.dtype or dtype in self.replaced else dtype

    def of_param(self, name: str, array: np.ndarray[Any, Any]) -> DType:
        """Return the type of an initializer that is a param."""
        dtype = array.dtype if name in self.kept else self.new(array.dtype)
        assert dtype is not None
        return dtype

    # -- values and declarations ------------------------------------------------------------------

    def cast(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return an array of the host in its new type."""
        return narrowed(array, self.dtype) if array.dtype in self.replaced else array

    def declared(self, source: Source) -> Source:
        """Return the model with the new types of its inputs and outputs."""
        graph = source.graph
        inputs, outputs = (tuple(map(self._info, i)) for i in (graph.inputs, graph.outputs))
        return replace(source, graph=_with_infos(graph, inputs, outputs))

    def _info(self, info: ValueInfo) -> ValueInfo:
        text = info.type
        for each in self.replaced if text else ():
            text = str(text).replace(type_name(each), type_name(self.dtype))
        return replace(info, type=text, dtype=self.new(info.dtype))


def narrowed(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return an array in a float type; finite numbers beyond its range become the last in it.

    Masks of exporters hold the lowest float32. As minus infinity they would make a row of a softmax
    NaN in which every place is masked.
    """
    with np.errstate(over="ignore"):
        result = np.asarray(array).astype(dtype)
        if dtype.itemsize >= array.dtype.itemsize and dtype != FLOAT16:
            return result
        beyond = np.isinf(result) & np.isfinite(array)
    if beyond.any():
        last = ml_dtypes.finfo(dtype).max
        result = np.where(beyond, np.where(array > 0, last, -last).astype(dtype), result)
    return result


def is_quantization_scale(parameter: Parameter) -> bool:
    """Whether an op multiplies integers by the value, so that its exactness is theirs."""
    return parameter.name.endswith("_scale")


def _with_infos(
    graph: Graph, inputs: tuple[ValueInfo, ...], outputs: tuple[ValueInfo, ...]
) -> Graph:
    return Graph(graph.name, inputs, outputs, graph.nodes, graph.initializers)


# -- the type that a model multiplies in -----------------------------------------------------------


def _own_type(source: Source) -> DType:
    """Return the type of most numbers of the weights, as they are read; else that of the inputs."""
    graph, counts = source.graph, Counter[DType]()
    read_as = _types_of_casts(graph.nodes)
    for name, array in graph.initializers.items():
        if array.dtype.name in FLOATS:
            counts[read_as.get(name) or array.dtype] += array.size
    for array in _constants(source):
        if array.dtype.name in FLOATS:
            counts[array.dtype] += array.size
    for info in graph.inputs if not counts else ():
        if info.dtype is not None and info.dtype.name in FLOATS:
            counts[info.dtype] += 1
    return max(counts, key=lambda dtype: counts[dtype], default=FLOAT32)


def _types_of_casts(nodes: Iterable[Node]) -> Mapping[str, DType]:
    """Return the values that only casts to one float type read, with that type."""
    read_as: dict[str, set[DType | None]] = defaultdict(set)
    for node in nodes:
        number = node.attributes.get("to") if node.op_type == "Cast" else None
        written = dtype_of(number).name if isinstance(number, int) else ""
        for name in names_read(node):
            read_as[name].add(FLOATS.get(written))
    return {
        name: target
        for name, targets in read_as.items()
        if len(targets) == 1 and (target := next(iter(targets))) is not None
    }


def _constants(source: Source) -> Iterator[np.ndarray[Any, Any]]:
    bodies = [source.graph.nodes, *(function.nodes for function in source.functions.values())]
    for nodes in bodies:
        for node in every_node(nodes):
            yield from (v for v in node.attributes.values() if isinstance(v, np.ndarray))
            for graph in node.subgraphs:
                yield from graph.initializers.values()
