"""A small node of an operator of onnxruntime, as data, and arrays to write one with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sardonyx.graph.standard.types import number_of
from tests.support.gradient_cases import x as floats

MICROSOFT, BLOCKED = "com.microsoft", "com.microsoft.nchwc"


@dataclass(frozen=True)
class Small:
    """A node with its inputs; those that are not in `weights` are the model's inputs."""

    op: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = MICROSOFT
    weights: frozenset[int] = frozenset()

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        present = ((i, v) for i, v in enumerate(self.inputs) if v is not None)
        return {f"x{i}": np.asarray(v) for i, v in present if i not in self.weights}

    def model(self, feeds: dict[str, np.ndarray] | None = None, **dims: Any) -> onnx.ModelProto:
        """Return the model for inputs of these types; `dims` are the shapes that it declares."""
        feeds = self.feeds if feeds is None else feeds
        names = ["" if v is None else f"x{i}" for i, v in enumerate(self.inputs)]
        inputs = [
            helper.make_tensor_value_info(name, number_of(v.dtype), dims.get(name))
            for name, v in feeds.items()
        ]
        weights = [
            numpy_helper.from_array(np.asarray(self.inputs[i]), f"x{i}") for i in self.weights
        ]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(
            self.op, names, results, "it", domain=self.domain, **self.attributes
        )
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph([node], self.op, inputs, outputs, weights)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(self.domain, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def small(
    op: str, *inputs: Any, outputs: int = 1, weights: Sequence[int] = (), **attributes: Any
) -> Small:
    return Small(op, inputs, attributes, outputs, MICROSOFT, frozenset(weights))


def blocked(op: str, *inputs: Any, **attributes: Any) -> Small:
    return Small(op, inputs, attributes, 1, BLOCKED)


def ints(*shape: int, high: int = 4, dtype: Any = np.int32, low: int = 0) -> np.ndarray:
    drawn = np.random.default_rng([high, *shape]).integers(low, high, shape)
    return np.asarray(drawn).astype(dtype)


def halves(*shape: int, seed: int = 0) -> np.ndarray:
    return floats(*shape, seed=seed).astype(np.float16)


def octets(*shape: int) -> np.ndarray:
    return ints(*shape, high=255, dtype=np.uint8)


def vector(*values: Any, dtype: Any = np.int32) -> np.ndarray:
    return np.array(values, dtype)


def scalar(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


F8 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.FLOAT8E4M3FN)
S, Z = scalar(0.05), scalar(100, np.uint8)
# A batch of 2 sequences of 4 tokens, with 2 heads of 4 elements.
TOKENS, HEADS, PAST = (2, 4, 8), (2, 2, 4, 4), (2, 2, 3, 4)
ONE_TOKEN = (2, 1, 8)
ANGLES = floats(8, 2, low=-1, high=1)
BLOCKS16 = (1, 16, 5, 5)
QUANTIZED = (octets(2, 3), S, Z)
CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
NBITS = {"K": 32, "N": 3, "block_size": 16}
PACKED = octets(3, 2, 8)
