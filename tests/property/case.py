"""One example: a single node with its inputs, as a model that any runtime can load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sardonyx.graph.standard.types import number_of


@dataclass(frozen=True)
class Case:
    """A node at an opset. An input is an array, or None where it is left out."""

    op: str
    opset: int
    inputs: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    # Which of the inputs the model holds as initializers; the others are fed.
    weights: frozenset[int] = frozenset()
    # How far results may be apart: in units in the last place of the expected value, and of
    # `scale`, the size of what was added up to get there.
    ulps: float = 4
    scale: float = 0
    on_jax: bool = False

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        return {
            f"x{i}": value
            for i, value in enumerate(self.inputs)
            if value is not None and i not in self.weights
        }

    @cached_property
    def model(self) -> bytes:
        names = ["" if value is None else f"x{i}" for i, value in enumerate(self.inputs)]
        made = [f"y{i}" for i in range(self.outputs)]
        typed = [
            helper.make_tensor_value_info(name, number_of(value.dtype), value.shape)
            for name, value in self.feeds.items()
        ]
        weights = [numpy_helper.from_array(self.inputs[i], f"x{i}") for i in sorted(self.weights)]
        node = helper.make_node(self.op, names, made, **self.attributes)
        results = [onnx.ValueInfoProto(name=name) for name in made]
        graph = helper.make_graph([node], self.op, typed, results, weights)
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return model.SerializeToString()
