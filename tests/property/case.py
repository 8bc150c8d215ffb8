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
    """A node at an opset. An input is an array, a list, a map, or None where it is left out."""

    op: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    # Which of the inputs the model holds as initializers; the others are fed.
    weights: frozenset[int] = frozenset()
    # How far results may be apart: in units in the last place of the expected value, and of
    # `scale`, the size of what was added up to get there.
    ulps: float = 4
    scale: float = 0
    on_jax: bool = False
    domain: str = ""
    # Whether the types of the inputs are optionals.
    optional: bool = False

    @cached_property
    def feeds(self) -> dict[str, Any]:
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
            helper.make_value_info(name, _type_of(value, self.optional))
            for name, value in self.feeds.items()
        ]
        weights = [numpy_helper.from_array(self.inputs[i], f"x{i}") for i in sorted(self.weights)]
        node = helper.make_node(self.op, names, made, domain=self.domain, **self.attributes)
        results = [onnx.ValueInfoProto(name=name) for name in made]
        graph = helper.make_graph([node], self.op, typed, results, weights)
        imports = [helper.make_opsetid(self.domain, self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return model.SerializeToString()


def _type_of(value: Any, optional: bool) -> onnx.TypeProto:
    if isinstance(value, dict):
        key, held = (_number_of_scalar(one) for one in next(iter(value.items())))
        return helper.make_map_type_proto(key, helper.make_tensor_type_proto(held, None))
    if isinstance(value, list):
        element = helper.make_tensor_type_proto(number_of(value[0].dtype), None)
        made = helper.make_sequence_type_proto(element)
    else:
        made = helper.make_tensor_type_proto(number_of(value.dtype), value.shape)
    return helper.make_optional_type_proto(made) if optional else made


def _number_of_scalar(value: Any) -> int:
    kinds = {str: object, int: np.int64, float: np.float32}
    return number_of(np.dtype(kinds[type(value)]))
