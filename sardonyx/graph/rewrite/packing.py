"""Products by the backend's own kernels: the weight is packed ahead of all calls.

What such a kernel computes is the backend's promise: the same sums, perhaps in another order.
"""

from __future__ import annotations

from sardonyx.graph.program import Step
from sardonyx.graph.rewrite.epilogue import layout_of
from sardonyx.graph.rewrite.passage import Passage, Replacement, ahead_of, calling, calls
from sardonyx.ops.fused import convolution_and_more, packed, packed_product


def use_packed_weight(passage: Passage, step: Step) -> Replacement:
    """A kernel for arrays of these very shapes, if the backend has one."""
    backend, (source, weight, *others) = passage.backend, step.operands
    x, w = passage.spec(source), passage.spec(weight)
    if backend is None or x is None or w is None or not passage.can_add:
        return None
    convolves = calls(step, convolution_and_more)
    find = backend.packed_convolution if convolves else backend.packed_matmul
    product = find(x, w, **layout_of(step))
    if product is None:
        return None
    made = passage.fresh(*product.packed)
    return [
        ahead_of(step, made, packed, (weight,), "PackedWeight", product=product),
        calling(step, packed_product, (source, made[0], *others), step.title, product=product),
    ]
