"""Runs of nodes that exporters write and rewrites look for; chance alone would hardly find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.graph.standard.types import DType
from tests.fuzz.graph import INITIALIZER, INPUT, Node
from tests.fuzz.values import Unstable

if TYPE_CHECKING:
    from tests.fuzz.building import Builder

FLOATS = [np.dtype(name) for name in ("float32", "float32", "float64", "float16")]


class Motif:
    """Adds nodes to a builder, with inputs and weights of one dtype."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.random = builder, builder.random
        self.dtype: DType = self.random.choice(FLOATS)

    def weight(self, *shape: int, least: float = -2) -> str:
        """A weight, or now and then a product of two, so that parts depend on weights alone."""
        name = self._held(shape, least, INITIALIZER)
        if len(shape) == 2 and self.random.random() < 0.3:
            name = self.product("MatMul", name, self._held((shape[1], shape[1]), -2, INITIALIZER))
        if self.random.random() < 0.2:
            name = self.builder.emit("Mul", name, self.number(1.1))
        return name

    def input(self, *shape: int) -> str:
        return self._held(shape, -2, INPUT)

    def number(self, value: float) -> str:
        return self.builder.leave(np.array(value, self.dtype), INITIALIZER)

    def product(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node that adds up products, and so is off by more than its own last place."""
        size = max(self.builder.values[name].data.size for name in inputs[:2])
        name = self.builder.new()
        self.builder.append(Node(op, inputs, (name,), attributes, scale=float(size)))
        return name

    def _held(self, shape: Sequence[int], least: float, kind: str) -> str:
        numbers = np.random.default_rng(self.random.randrange(2**32)).uniform(least, 2, shape)
        return self.builder.leave(numbers.astype(self.dtype), kind)


def dense(motif: Motif) -> None:
    """A layer of weights and a bias, and what follows it."""
    rows, inner, columns = (motif.random.randint(1, 9) for _ in range(3))
    x = motif.input(*motif.random.choice([(), (2,), (2, 3)]), rows, inner)
    emit = motif.builder.emit
    y = motif.product("MatMul", x, motif.weight(inner, columns))
    y = emit("Add", y, motif.weight(columns))
    activated(motif, y)


def activated(motif: Motif, x: str) -> str:
    """An activation, by its operator or spelled out."""
    emit, choice = motif.builder.emit, motif.random.choice(["Relu", "silu", "gelu", "tanh", "clip"])
    if choice == "silu":
        return emit("Mul", x, emit("Sigmoid", x))
    if choice == "gelu":
        erf = emit("Erf", emit("Div", x, motif.number(2**0.5)))
        return emit("Mul", emit("Mul", x, emit("Add", erf, motif.number(1))), motif.number(0.5))
    if choice == "clip" and motif.builder.opset >= 11:
        return emit("Clip", x, motif.number(-0.5), motif.number(3))
    return emit("Relu" if choice == "Relu" else "Tanh", x)


def convolved(motif: Motif) -> None:
    """A convolution, a batch normalization and an activation."""
    channels, filters = motif.random.randint(1, 4), motif.random.randint(1, 5)
    x = motif.input(motif.random.randint(1, 2), channels, 5, 4)
    if motif.random.random() < 0.5:
        x = padded(motif, x)
    if motif.random.random() < 0.3:
        x = quantized(motif, x)
    y = motif.product("Conv", x, motif.weight(filters, channels, 3, 2))
    rest = [motif.weight(filters) for _ in range(3)]
    spread = motif.weight(filters, least=0.5)
    y = motif.product("BatchNormalization", y, *rest, spread)
    activated(motif, y)


def padded(motif: Motif, x: str) -> str:
    """Zeros around images, as TensorFlow's exporters write them."""
    ends = [motif.random.randint(0, 2) for _ in range(4)]
    pads = motif.builder.leave(np.array([0, 0, *ends[:2], 0, 0, *ends[2:]]), INITIALIZER)
    return motif.builder.emit("Pad", x, pads)


def quantized(motif: Motif, x: str) -> str:
    """Integers and back, as exporters put it before each operator of a network in static int8."""
    if motif.dtype != np.float32 or motif.builder.opset < 10:
        return x
    emit, leave = motif.builder.emit, motif.builder.leave
    scale, zero = motif.number(0.05), leave(np.array(3, np.int8), INITIALIZER)
    return emit("DequantizeLinear", emit("QuantizeLinear", x, scale, zero), scale, zero)


def normalized(motif: Motif) -> None:
    """Layer normalization, spelled out as exporters did before there was an operator."""
    if motif.builder.opset >= 18:
        raise Unstable("axes are an input")
    emit, size = motif.builder.emit, motif.random.randint(2, 8)
    x = motif.input(2, 3, size)
    centred = emit("Sub", x, emit("ReduceMean", x, axes=[-1]))
    squared = emit("Pow", centred, motif.number(2))
    variance = emit("Add", emit("ReduceMean", squared, axes=[-1]), motif.number(1e-3))
    y = emit("Div", centred, emit("Sqrt", variance))
    emit("Add", emit("Mul", y, motif.weight(size)), motif.weight(size))


def attended(motif: Motif) -> None:
    """Attention, spelled out, with heads split off and joined again."""
    emit, heads, size = motif.builder.emit, motif.random.randint(1, 3), motif.random.randint(1, 4)
    x = motif.input(2, 5, heads * size)
    split = motif.builder.leave(np.array([0, 0, heads, size]), INITIALIZER)
    joined = motif.builder.leave(np.array([0, 0, heads * size]), INITIALIZER)

    def head(perm: list[int]) -> str:
        y = motif.product("MatMul", x, motif.weight(heads * size, heads * size))
        return emit("Transpose", emit("Reshape", y, split), perm=perm)

    scores = motif.product("MatMul", head([0, 2, 1, 3]), head([0, 2, 3, 1]))
    scores = emit("Mul", scores, motif.number(size**-0.5))
    y = motif.product("MatMul", emit("Softmax", scores, axis=3), head([0, 2, 1, 3]))
    emit("Reshape", emit("Transpose", y, perm=[0, 2, 1, 3]), joined)


MOTIFS: Sequence[Callable[[Motif], None]] = (dense, convolved, normalized, attended)


def add_motif(builder: Builder) -> None:
    """One of the motifs, with weights of its own."""
    builder.random.choice(MOTIFS)(Motif(builder))
