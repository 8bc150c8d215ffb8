"""Products by the backend's own kernels, with weights that are packed ahead of all calls.

The backend promises that such a kernel computes the same sums, perhaps in another order.
"""

from __future__ import annotations

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, attributes_of, calls, instead_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.fused_products import convolution_and_more, packed, packed_product


def use_packed_weight(passage: Passage, step: Step) -> Replacement:
    """Use a kernel for these very shapes, if possible with the whole epilogue in it."""
    source, weight, *others = step.operands
    x, w = passage.spec(source), passage.spec(weight)
    backend, convolves = passage.backend, calls(step, convolution_and_more)
    kernel_for = backend.packed_convolution if convolves else backend.packed_matmul
    attributes, rest = attributes_of(step), NOTHING
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
