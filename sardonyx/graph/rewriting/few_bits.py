"""Products with weights of few bits, which are unpacked ahead of all calls.

The sums are the same. An unpacked weight takes up to 16 times the memory of the packed one: where
all weights of a model would then need more than half of the memory, they are unpacked at each call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.memory_limit import memory_limit
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    call_of,
    function_of,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.definition import Definition
from sardonyx.ops.elementwise import Add
from sardonyx.ops.linalg import MatMul
from sardonyx.ops.microsoft.quantized_experts import QMoE, experts_weight, mixed
from sardonyx.ops.microsoft.unpacking import UNPACKING


def unpack_weight_once(passage: Passage, step: Step) -> Replacement:
    """Divide a product with a packed weight: the weight, which is fixed, and a plain product."""
    op = next(op for op in UNPACKING if function_of(op) is call_of(step).function)
    unpacking, values = UNPACKING[op], parameters_of(step, op)
    inputs = [values[name] for name in unpacking.inputs]
    packed, arguments = _present(inputs)
    source, (result,) = passage.spec(values["A"]), step.specs
    weight = Spec((source.shape[-1], result.shape[-1]), result.dtype)
    if not all(map(passage.is_fixed, packed)) or not _fits(passage, packed, weight):
        return None
    unpack = passage.ahead_of(
        step,
        weight,
        unpacking.function,
        packed,
        arguments,
        title="UnpackedWeight",
        **{name: values[name] for name in unpacking.attributes},
    )
    factors = (values["A"], *unpack.results)
    if values.get("bias") is None:
        return [unpack, instead_of(step, MatMul, factors)]
    product = passage.ahead_of(step, result, MatMul, factors)
    return [unpack, product, instead_of(step, Add, (*product.results, values["bias"]))]


def unpack_experts_once(passage: Passage, step: Step) -> Replacement:
    """Divide a mixture of packed experts: their weights, which are fixed, and the mixture."""
    values = parameters_of(step, QMoE)
    layers = [_PackedLayer.of(passage, values, name) for name in ("fc1", "fc2", "fc3")]
    (dtype,) = {spec.dtype for spec in step.specs}
    if not all(layer.may_unpack(passage, dtype) for layer in layers if layer is not None):
        return None
    ahead = [None if layer is None else layer.unpacking(passage, step) for layer in layers]
    inputs = [values["input"], values["router_probs"], values["router_weights"]]
    for unpack, name in zip(ahead, ("fc1", "fc2", "fc3"), strict=True):
        inputs += [None if unpack is None else unpack.results[0], values[f"{name}_experts_bias"]]
    options = {name: values[name] for name in Definition.of(mixed).attributes}
    operands, arguments = _present(inputs)
    mix = instead_of(step, mixed, operands, arguments, title="MoE", **options)
    return [*(unpack for unpack in ahead if unpack is not None), mix]


@dataclass(frozen=True, slots=True)
class _PackedLayer:
    """The inputs for one layer of all experts, and the unpacked weight."""

    inputs: Sequence[Operand | None]
    options: Mapping[str, int]
    weight: Spec

    @classmethod
    def of(cls, passage: Passage, values: Mapping[str, Any], name: str) -> _PackedLayer | None:
        packed = values[f"{name}_experts_weights"]
        if packed is None:
            return None
        scales = values[f"{name}_scales"]
        bits = values[f"{name}_expert_weight_bits"] or values["expert_weight_bits"]
        *outer, size = passage.spec(packed).shape
        return cls(
            [packed, scales, values[f"{name}_zero_points"]],
            {"bits": bits, "block_size": values["block_size"] or 0},
            Spec((*outer, size * 8 // bits), passage.spec(scales).dtype),
        )

    def may_unpack(self, passage: Passage, dtype: np.dtype[Any]) -> bool:
        operands, _ = _present(self.inputs)
        if self.weight.dtype != dtype or not all(map(passage.is_fixed, operands)):
            return False
        return _fits(passage, operands, self.weight)

    def unpacking(self, passage: Passage, step: Step) -> Step:
        each = _present(self.inputs)
        options: dict[str, Any] = {"title": "UnpackedWeight", **self.options}
        return passage.ahead_of(step, self.weight, experts_weight, *each, **options)


def _present(inputs: Sequence[Operand | None]) -> tuple[list[Operand], list[Any]]:
    """Return the operands among inputs, and the arguments of a call with a hole for each."""
    operands = [operand for operand in inputs if operand is not None]
    return operands, [None if operand is None else HOLE for operand in inputs]


def _fits(passage: Passage, packed: Sequence[Operand], weight: Spec) -> bool:
    """Whether half of the memory holds all weights of the model, if all grow as this one."""
    before = sum(_size(passage.spec(operand)) for operand in packed)
    return _size(weight) * passage.size_of_weights <= before * (memory_limit() // 2)


def _size(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
