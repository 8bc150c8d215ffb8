"""Products with weights of few bits, which are unpacked ahead of all calls.

The sums are the same. An unpacked weight takes up to 16 times the memory of the packed one: where
all weights of a model would then need more than half of the memory, they are unpacked at each call.
"""

from __future__ import annotations

import math

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
from sardonyx.ops.elementwise import Add
from sardonyx.ops.linalg import MatMul
from sardonyx.ops.microsoft.unpacking import UNPACKING


def unpack_weight_once(passage: Passage, step: Step) -> Replacement:
    """Divide a product with a packed weight: the weight, which is fixed, and a plain product."""
    op = next(op for op in UNPACKING if function_of(op) is call_of(step).function)
    unpacking, values = UNPACKING[op], parameters_of(step, op)
    inputs = [values[name] for name in unpacking.inputs]
    packed: list[Operand] = [operand for operand in inputs if operand is not None]
    source, (result,) = passage.spec(values["A"]), step.specs
    weight = Spec((source.shape[-1], result.shape[-1]), result.dtype)
    if not all(map(passage.is_fixed, packed)) or not _fits(passage, packed, weight):
        return None
    unpack = passage.ahead_of(
        step,
        weight,
        unpacking.function,
        packed,
        [None if operand is None else HOLE for operand in inputs],
        title="UnpackedWeight",
        **{name: values[name] for name in unpacking.attributes},
    )
    factors = (values["A"], *unpack.results)
    if values.get("bias") is None:
        return [unpack, instead_of(step, MatMul, factors)]
    product = passage.ahead_of(step, result, MatMul, factors)
    return [unpack, product, instead_of(step, Add, (*product.results, values["bias"]))]


def _fits(passage: Passage, packed: list[Operand], weight: Spec) -> bool:
    """Whether half of the memory holds all weights of the model, if all grow as this one."""
    before = sum(_size(passage.spec(operand)) for operand in packed)
    return _size(weight) * passage.size_of_weights <= before * (memory_limit() // 2)


def _size(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
