"""An ONNX decoder of 70 billion parameters' shapes, whose weights nobody has to hold.

Its initializers are external data of a sparse file: they have names, types and shapes, and zeros
where one reads them. Keys and values lie in buffers of a fixed length, written at an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import TensorProto, helper

BFLOAT16, INT64 = TensorProto.BFLOAT16, TensorProto.INT64
WEIGHTS = "weights"


@dataclass(frozen=True)
class Sizes:
    """Those of the decoder; by default those of the largest Llama 3."""

    layers: int = 80
    width: int = 8192
    inner: int = 28672
    heads: int = 64
    shared_heads: int = 8
    head: int = 128
    vocabulary: int = 128256
    room: int = 8192

    @property
    def cache_bytes(self) -> int:
        """The bytes that a token's keys and values take, of all layers."""
        return 2 * 2 * self.layers * self.shared_heads * self.head


@dataclass
class _Writer:
    sizes: Sizes
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def weight(self, name: str, *shape: int) -> str:
        """Declare a weight; all of them lie at the beginning of the same file."""
        tensor = TensorProto(name=name, data_type=BFLOAT16, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        count = 2
        for size in shape:
            count *= size
        for key, text in (("location", WEIGHTS), ("offset", "0"), ("length", str(count))):
            tensor.external_data.add(key=key, value=text)
        self.weights.append(tensor)
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        node = helper.make_node(kind, inputs, [output], name=output, **attributes)
        self.nodes.append(node)
        return output

    def integers(self, name: str, *values: int) -> str:
        self.weights.append(helper.make_tensor(name, INT64, [len(values)], values))
        return name

    def norm(self, x: str, name: str) -> str:
        scale = self.weight(f"{name}.scale", self.sizes.width)
        return self.add("RMSNormalization", [x, scale], name, axis=-1)

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.add("MatMul", [x, self.weight(f"{name}.weight", rows, columns)], name)

    def heads(self, x: str, name: str, count: int) -> str:
        """(batch, length, count * head) as (batch, count, length, head)."""
        by_head = self.add("Reshape", [x, f"by_{count}"], f"{name}.by_head")
        return self.add("Transpose", [by_head], f"{name}.heads", perm=[0, 2, 1, 3])

    def turned(self, x: str, name: str) -> str:
        return self.add("RotaryEmbedding", [x, "cos", "sin", "positions"], f"{name}.turned")

    def attention(self, x: str, at: str, layer: int) -> str:
        sizes, whole = self.sizes, self.sizes.heads * self.sizes.head
        shared = sizes.shared_heads * sizes.head
        q = self.product(x, f"{at}.q", sizes.width, whole)
        k = self.product(x, f"{at}.k", sizes.width, shared)
        v = self.product(x, f"{at}.v", sizes.width, shared)
        q = self.turned(self.heads(q, f"{at}.q", sizes.heads), f"{at}.q")
        k = self.turned(self.heads(k, f"{at}.k", sizes.shared_heads), f"{at}.k")
        v = self.heads(v, f"{at}.v", sizes.shared_heads)
        k, v = (
            self.add(
                "TensorScatter", [f"past.{layer}.{part}", new, "start"], f"present.{layer}.{part}"
            )
            for part, new in (("key", k), ("value", v))
        )
        y = self.add("Attention", [q, k, v, "", "", "", "lengths"], f"{at}.mixed", is_causal=1)
        y = self.add("Transpose", [y], f"{at}.by_token", perm=[0, 2, 1, 3])
        y = self.add("Reshape", [y, "joined"], f"{at}.joined")
        return self.product(y, f"{at}.out", whole, sizes.width)

    def feed_forward(self, x: str, at: str) -> str:
        sizes = self.sizes
        gate = self.product(x, f"{at}.gate", sizes.width, sizes.inner)
        up = self.product(x, f"{at}.up", sizes.width, sizes.inner)
        active = self.add("Swish", [gate], f"{at}.active")
        inner = self.add("Mul", [active, up], f"{at}.inner")
        return self.product(inner, f"{at}.down", sizes.inner, sizes.width)


def _caches(sizes: Sizes, prefix: str) -> Iterator[onnx.ValueInfoProto]:
    shape = ["batch", sizes.shared_heads, sizes.room, sizes.head]
    for layer in range(sizes.layers):
        for part in ("key", "value"):
            yield helper.make_tensor_value_info(f"{prefix}.{layer}.{part}", BFLOAT16, shape)


def decoder(sizes: Sizes) -> onnx.ModelProto:
    """Return the graph: it takes new tokens, and returns the last one's logits and the buffers."""
    write = _Writer(sizes)
    whole = sizes.heads * sizes.head
    for count in {sizes.heads, sizes.shared_heads}:
        write.integers(f"by_{count}", 0, 0, count, sizes.head)
    write.integers("joined", 0, 0, whole)
    write.integers("last", -1)
    for name in ("cos", "sin"):
        write.weight(name, sizes.room, sizes.head // 2)
    x = write.add(
        "Gather", [write.weight("tokens.weight", sizes.vocabulary, sizes.width), "ids"], "embedded"
    )
    for layer in range(sizes.layers):
        at = f"layers.{layer}"
        y = write.attention(write.norm(x, f"{at}.before"), f"{at}.attention", layer)
        x = write.add("Add", [x, y], f"{at}.attended")
        y = write.feed_forward(write.norm(x, f"{at}.between"), f"{at}.inner")
        x = write.add("Add", [x, y], f"{at}.result")
    last = write.norm(write.add("Gather", [x, "last"], "last_token", axis=1), "normed")
    write.product(last, "logits", sizes.width, sizes.vocabulary)
    information = helper.make_tensor_value_info
    inputs = [
        information("ids", INT64, ["batch", "length"]),
        information("positions", INT64, ["batch", "length"]),
        information("start", INT64, ["batch"]),
        information("lengths", INT64, ["batch"]),
        *_caches(sizes, "past"),
    ]
    outputs = [information("logits", BFLOAT16, ["batch", 1, sizes.vocabulary])]
    outputs += _caches(sizes, "present")
    graph = helper.make_graph(write.nodes, "decoder", inputs, outputs, write.weights)
    opsets = [helper.make_opsetid("", 24)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def write(sizes: Sizes, folder: Path) -> Path:
    """Write the model, and a file of holes for its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model = decoder(sizes)
    largest = max(
        int(entry.value)
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "length"
    )
    with open(folder / WEIGHTS, "wb") as holes:
        holes.truncate(largest)
    path = folder / f"decoder-{sizes.layers}.onnx"
    path.write_bytes(model.SerializeToString())
    return path
