"""Products by the backend's own kernels, with weights that are packed ahead of all calls.

The backend promises that such a kernel computes the same sums, perhaps in another order.
"""

from __future__ import annotations

import math

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, attributes_of, calls, instead_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.fused_products import (
    convolution_and_more,
    packed,
    packed_product,
    product_and_more,
)

# Programs up to these sizes run as calls of NumPy, if it has a function for each of their steps.
MOST_STEPS, MOST_ELEMENTS = 16, 2**12
# Of the factors of all products of such a program.
MOST_PAIRS = 2**17


def use_packed_weight(passage: Passage, step: Step) -> Replacement:
    """Use a kernel for these very shapes, if possible with the whole epilogue in it."""
    source, weight, *others = step.operands
    x, w = passage.spec(source), passage.spec(weight)
    backend, convolves = passage.backend, calls(step, convolution_and_more)
    kernel_for = backend.packed_convolution if convolves else backend.packed_matmul
    attributes, rest = attributes_of(step), NOTHING
    if not convolves:
        attributes["in_small_program"] = _is_small(passage)
        attributes["single_rows"] = passage.single_rows
    product = kernel_for(x, w, **attributes)
    if product is None:
        rest = attributes["epilogue"]
        product = kernel_for(x, w, **attributes | {"epilogue": NOTHING})
    if product is None:
        return None
    form = product.form
    whole = Spec(*form.packed)
    pack = passage.ahead_of(step, whole, packed, (weight,), title="PackedWeight", form=form)
    multiply = instead_of(
        step,
        packed_product,
        (source, *pack.results, *others),
        title=step.title,
        product=product,
        epilogue=rest,
        by_channel=(-1, *(1,) * (len(x.shape) - 2)) if convolves else (-1,),
    )
    return [pack, multiply]


def _is_small(passage: Passage) -> bool:
    """Return whether the whole program is so small that NumPy may compute it."""
    steps = passage.steps
    if len(steps) > MOST_STEPS:
        return False
    if any(step.blocks or calls(step, convolution_and_more) for step in steps):
        return False
    elements = max(math.prod(spec.shape) for step in steps for spec in step.specs)
    pairs = sum(_pairs(passage, step) for step in steps)
    return elements <= MOST_ELEMENTS and pairs <= MOST_PAIRS


def _pairs(passage: Passage, step: Step) -> int:
    """Return how many pairs of numbers a step multiplies if it is a product of matrices."""
    if not calls(step, product_and_more):
        return 0
    x, weight, *_ = map(passage.spec, step.operands)
    return math.prod(x.shape[:-1]) * math.prod(weight.shape)
