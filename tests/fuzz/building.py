"""Random graphs, valid by construction: each node is run as it is added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from random import Random
from typing import Any

import numpy as np
from onnx import defs

import sardonyx
from sardonyx.graph.standard.types import DType
from tests.fuzz.evaluation import apply
from tests.fuzz.exactness import names_in
from tests.fuzz.fitting import Fitter
from tests.fuzz.graph import CONSTANT, INITIALIZER, INPUT, Array, Graph, Leaf, Node
from tests.fuzz.motifs import add_motif
from tests.fuzz.nesting import NESTED, body_of
from tests.fuzz.supply import Offer, type_choices
from tests.fuzz.values import Unstable, Value, is_float, parts
from tests.property import test_microsoft_floats
from tests.property.case import Case
from tests.property.makers import MAKERS
from tests.property.microsoft import DOMAIN as MICROSOFT
from tests.property.reference import domain_of, newest_opset, versions
from tests.property.strategies import is_packed, ordinary, wild

OLDEST, NEWEST = 7, 28
ML = "ai.onnx.ml"
# Operators that take whatever comes and hand on something of use; half of all nodes.
CHAINING = names_in(
    "Add Sub Mul Div Max Min Sum Where MatMul Gemm Conv Relu Tanh Sigmoid Exp Sqrt Abs Neg Clip "
    "Softmax ReduceSum ReduceMean ReduceMax Reshape Transpose Concat Slice Gather Expand Cast "
    "Squeeze Unsqueeze Pad Split Equal Less Greater LayerNormalization BatchNormalization Pow Erf "
    "Shape Identity CumSum Einsum Flatten Tile And Or Not"
)
# What these return for a dtype, or a number of outputs, has no use in a graph.
LEFT_OUT = frozenset(["DictVectorizer", "ZipMap", "CastMap", "StringNormalizer"])


class Builder:
    """Grows one graph, node by node."""

    def __init__(
        self, random: Random, opsets: Mapping[str, int], everywhere: bool, names: Iterator[int]
    ) -> None:
        self.random, self.opsets, self.names = random, opsets, names
        # Whether onnxruntime is to have a kernel for every node.
        self.everywhere = everywhere
        self.opset = opsets[""]
        self.values: dict[str, Value] = {}
        # Optionals, which no other node takes.
        self.hidden: dict[str, Value] = {}
        self.leaves: list[Leaf] = []
        self.nodes: list[Node] = []
        self.kinds = random.choices([INPUT, INITIALIZER, CONSTANT], k=3, weights=[5, 4, 1])
        self.nests = True
        self.fitter = Fitter(self.values, self.emit, self.leave, self.opset)

    def start(self) -> None:
        """Put in some arrays to begin with."""
        for _ in range(self.random.randint(1, 3)):
            dtype = np.dtype(self.random.choice(STARTS))
            shape = tuple(self.random.choices(SIZES, k=self.random.randint(0, 4)))
            kind = self.random.choice([INPUT, INPUT, INITIALIZER])
            self.leave(drawn(self.random, dtype, shape), kind)

    def grow(self, size: int) -> None:
        """Add nodes until there are so many, or until too few of those that are drawn fit in."""
        for _ in range(4 * size):
            if len(self.nodes) >= size:
                return
            luck = self.random.random()
            if self.nodes and luck < 0.04:
                self._attempt(self._again)
            elif self.nests and luck > 0.98:
                self._attempt(lambda: add_motif(self))
            elif self.nests and luck > 0.93:
                nest = self.random.choice(NESTED)
                self._attempt(lambda nest=nest: nest(self))
            else:
                self._attempt(self._add)

    def nested(self, formals: Mapping[str, Value]) -> Builder:
        """A builder of a subgraph, which sees what is here and what it is called with."""
        inner = Builder(self.random, self.opsets, self.everywhere, self.names)
        inner.values |= self.values | formals
        inner.hidden |= self.hidden
        inner.kinds, inner.nests = [INITIALIZER, INITIALIZER, CONSTANT], False
        return inner

    def body(
        self,
        outputs: Sequence[str],
        formals: Mapping[str, Value] | None = None,
        shaped: bool = False,
    ) -> Graph:
        return body_of(self, outputs, formals or {}, shaped)

    def graph(self) -> Graph:
        read = {name for node in self.nodes for name in node.reads}
        made = [name for node in self.nodes for name in node.outputs]
        outputs = [n for n in made if n not in read or self.random.random() < 0.1]
        held = {n for n, value in self.values.items() if not isinstance(value.data, list)}
        outputs = [name for name in outputs if name in held]
        symbolic = self.random.random() < 0.3
        leaves, nodes = tuple(self.leaves), tuple(self.nodes)
        graph = Graph(self.opsets, leaves, nodes, tuple(outputs), symbolic).pruned()
        used = {node.domain for node in graph.walk()}
        return replace(graph, opsets={d: v for d, v in self.opsets.items() if d in {"", *used}})

    # -- one more -----------------------------------------------------------------------------

    def _attempt(self, add: Any) -> None:
        """Add nodes by a function, or none where what it adds is invalid or of no use."""
        before = len(self.leaves), len(self.nodes), len(self.values)
        try:
            add()
        except (sardonyx.SardonyxError, Unstable, _Useless):
            del self.leaves[before[0] :], self.nodes[before[1] :]
            for name in list(self.values)[before[2] :]:
                del self.values[name]

    def _add(self) -> None:
        if self.random.random() < 0.05:
            self._add_fused()
            return
        known = operators("", self.opset, self.everywhere)
        if self.random.random() < 0.07:
            known = operators(ML, self.opsets[ML], self.everywhere)
        elif self.random.random() < 0.5:
            known = tuple(op for op in CHAINING if op in known)
        op = self.random.choice(known)
        domain = domain_of(op)
        offer = Offer(self.random, self.values, self.fitter.fit, self.everywhere)
        case = MAKERS[op](offer, op, self.opsets[domain])
        if case.opset != self.opsets[domain]:
            raise _Useless
        self._wire(case, domain, offer)

    def _add_fused(self) -> None:
        """A node as onnxruntime's optimizer writes it."""
        op = self.random.choice([*test_microsoft_floats.CASES])
        offer = Offer(self.random, self.values, self.fitter.fit, self.everywhere)
        self._wire(test_microsoft_floats.CASES[op](offer, op), MICROSOFT, offer)

    def _wire(self, case: Case, domain: str, offer: Offer) -> None:
        inputs = [self._named(value, offer, case.optional) for value in case.inputs]
        outputs = self.fresh(case.outputs)
        node = Node(case.op, tuple(inputs), outputs, case.attributes, domain, case.ulps, case.scale)
        self.append(node)

    def _named(self, value: Any, offer: Offer, optional: bool = False) -> str:
        if value is None:
            return ""
        if isinstance(value, dict):
            raise _Useless
        if isinstance(value, list):
            if not value:
                raise _Useless
            items = tuple(self._named(item, offer) for item in value)
            name = self.emit("SequenceConstruct", *items)
        else:
            name = offer.names.get(id(value)) or self.leave(value)
        return self.emit("Optional", name) if optional else name

    def _again(self) -> None:
        """The same node once more, as exporters leave it behind."""
        node = self.random.choice(self.nodes)
        outputs = self.fresh(len(node.outputs))
        self.append(
            Node(node.op, node.inputs, outputs, node.attributes, node.domain, node.ulps, node.scale)
        )

    # -- what others add with -----------------------------------------------------------------

    def append(self, node: Node) -> None:
        results = apply(node, self.values | self.hidden, self.opsets)
        for value in results:
            require_useful(value, self.random)
        self.nodes.append(node)
        held = self.hidden if node.op == "Optional" else self.values
        held |= zip(node.outputs, results, strict=True)

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self.new()
        self.append(Node(op, inputs, (name,), attributes))
        return name

    def leave(self, array: Array, kind: str | None = None) -> str:
        name = self.new()
        array = np.array(array)
        kind = kind or self.random.choice(self.kinds)
        if is_packed(array.dtype) or (kind == CONSTANT and not self._as_constant(array.dtype)):
            kind = INITIALIZER
        self.leaves.append(Leaf(name, array, kind))
        self.values[name] = Value(array)
        return name

    def _as_constant(self, dtype: DType) -> bool:
        allowed = type_choices("Constant", self.opset, self.everywhere)[0]["T"]
        return dtype in allowed

    def new(self) -> str:
        return f"v{next(self.names)}"

    def fresh(self, count: int) -> tuple[str, ...]:
        return tuple(self.new() for _ in range(count))


STARTS = ["float32"] * 6 + ["float64"] * 2 + ["float16", "int64", "int64", "int32", "bool"]
SIZES = [1, 2, 2, 3, 3, 4, 5, 1, 2, 3, 4, 0]


class _Useless(Exception):  # noqa: N818
    """What was drawn has no place in a graph."""


def require_useful(value: Value, random: Random) -> None:
    """Refuse results too large, and mostly those that are NaN or infinite all over."""
    arrays = parts(value.data)
    if not arrays or any(not isinstance(a, np.ndarray) for a in arrays):
        raise _Useless
    for array in arrays:
        if array.size > 20_000:
            raise _Useless
        if is_float(array.dtype) and array.size and random.random() < 0.9:
            finite = np.isfinite(array.astype(np.float64)).mean()
            if finite < 0.5:
                raise _Useless


def drawn(random: Random, dtype: DType, shape: tuple[int, ...]) -> Array:
    pool = wild if random.random() < 0.15 else ordinary
    rng = np.random.default_rng(random.randrange(2**32))
    array = np.empty(shape, dtype)
    values = pool(dtype)
    array[...] = values[rng.integers(len(values), size=shape)]
    return array


@cache
def operators(domain: str, opset: int, everywhere: bool) -> tuple[str, ...]:
    """The operators of a domain that can be drawn at an opset."""
    found = []
    for op in sorted(MAKERS.keys() - LEFT_OUT):
        if domain_of(op) != domain:
            continue
        try:
            schema = defs.get_schema(op, opset, domain)
        except defs.SchemaError:
            continue
        if schema.deprecated or not type_choices(op, opset, everywhere):
            continue
        if not everywhere or schema.since_version in versions(op):
            found.append(op)
    return tuple(found)


def built(seed: int, index: int) -> tuple[Graph, dict[str, Value]]:
    """The graph of this number in the series of a seed, and all its values."""
    random = Random(f"{seed}/{index}")
    opset = random.choice(range(OLDEST, NEWEST + 1))
    everywhere = opset <= newest_opset("") and random.random() < 0.85
    opsets = {"": opset, ML: random.choice(range(1, newest_opset(ML) + 1)), MICROSOFT: 1}
    builder = Builder(random, opsets, everywhere, count(1))
    builder.start()
    builder.grow(random.choice([3, 5, 8, 12, 18, 30]))
    return builder.graph(), builder.values | builder.hidden
