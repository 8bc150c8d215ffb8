"""Products by the backend's own kernels: the weight is packed ahead of all calls.

What such a kernel computes is the backend's promise: the same sums, perhaps in another order.
"""

from __future__ import annotations

from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.graph.rewriting.epilogue import layout_of
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, ahead_of, calling, calls
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.fused_products import convolution_and_more, packed, packed_product


def use_packed_weight(passage: Passage, step: Step) -> Replacement:
    """A kernel for arrays of these very shapes, with what follows or without, if there is one."""
    backend, (source, weight, *others) = passage.backend, step.operands
    x, w = passage.spec(source), passage.spec(weight)
    if backend is None or x is None or w is None or not passage.can_add:
        return None
    convolves = calls(step, convolution_and_more)
    find = backend.packed_convolution if convolves else backend.packed_matmul
    layout, rest = layout_of(step), NOTHING
    product = find(x, w, **layout)
    if product is None:
        rest = layout.pop("epilogue")
        product = find(x, w, **layout, epilogue=NOTHING)
    if product is None:
        return None
    made = passage.fresh(*product.packed)
    by_channel = (-1, *(1,) * (len(x.shape) - 2)) if convolves else (-1,)
    return [
        ahead_of(step, made, packed, (weight,), "PackedWeight", product=product),
        calling(
            step,
            packed_product,
            (source, made[0], *others),
            step.title,
            product=product,
            epilogue=rest,
            by_channel=by_channel,
        ),
    ]
