"""A product with weights and what follows it: one step, where the backend has a kernel for it.

A bias, an activation, and the sum with an array of the same shape, before the activation or after.
The same operations in the same order; a kernel may round their results only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.graph.rewriting.cancelling import RESHAPES
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    ahead_of,
    call_of,
    calling,
    calls,
    function_of,
    given,
)
from sardonyx.graph.rewriting.swish import limits
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.activation import (
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Relu,
    Sigmoid,
    Swish,
)
from sardonyx.ops.convolution import Conv, windows_of_filters
from sardonyx.ops.elementwise import Clip, Tanh, clip_to_attributes
from sardonyx.ops.fused_products import convolution_and_more, product_and_more
from sardonyx.ops.layout import Reshape
from sardonyx.ops.linalg import Gemm, MatMul

PRODUCTS: tuple[Called, ...] = (Conv, Gemm, MatMul)
FUSED: tuple[Called, ...] = (convolution_and_more, product_and_more)
ACTIVATIONS: tuple[Called, ...] = (
    Relu,
    LeakyRelu,
    Clip,
    clip_to_attributes,
    Gelu,
    Swish,
    Tanh,
    Sigmoid,
    HardSwish,
    HardSigmoid,
    Elu,
)


# -- the product ----------------------------------------------------------------------------------


def begin_epilogue(passage: Passage, step: Step) -> Replacement:
    """A product with a weight as one that more can be done with."""
    if kind_of(step.specs[0].dtype) != "real floating":
        return None
    found = (_convolution if calls(step, Conv) else _matrix_product)(passage, step)
    if found is None or not passage.is_fixed(found.operands[1]):
        return None
    if all(map(passage.is_fixed, found.operands)):
        return None  # The host computes it once, ahead of all calls, and needs no kernel.
    if calls(step, Conv) and not _may_skip_padding(passage, found):
        return None
    same = {spec.dtype for o in found.operands if (spec := passage.spec(o)) is not None}
    return [found] if same == {step.specs[0].dtype} else None


def skip_padding(passage: Passage, step: Step) -> Replacement:
    """A convolution whose weight is known to be finite: zeros of padding need no products."""
    found = _convolution(passage, step)
    return [found] if found is not None and _may_skip_padding(passage, found) else None


def _may_skip_padding(passage: Passage, convolution: Step) -> bool:
    pads = layout_of(convolution)["pads"]
    return not any(map(any, pads)) or passage.is_finite(convolution.operands[1])


def _convolution(passage: Passage, step: Step) -> Step | None:
    bound = given(step, Conv)
    source, weight = passage.spec(bound["X"]), passage.spec(bound["W"])
    if source is None or weight is None:
        return None
    options = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    layout = {name: bound[name] for name in options}
    windows = windows_of_filters(_like(source), _like(weight), **layout)
    return _begun(
        step,
        convolution_and_more,
        [bound["X"], bound["W"]],
        bound["B"],
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        groups=bound["group"],
    )


def _like(spec: Spec) -> Any:
    """An array of that shape, of which nobody reads more."""
    return np.broadcast_to(np.empty((), np.bool_), spec.shape)


def _matrix_product(passage: Passage, step: Step) -> Step | None:
    if calls(step, MatMul):
        specs = [spec for o in step.operands if (spec := passage.spec(o)) is not None]
        if len(specs) < 2 or len(specs[0].shape) < 2 or len(specs[1].shape) != 2:
            return None
        return _begun(step, product_and_more, step.operands, None, is_transposed=False)
    bound = given(step, Gemm)
    bias = None if bound["C"] is None else passage.spec(bound["C"])
    is_plain = not bound["transA"] and bound["alpha"] == 1
    if bound["C"] is not None:
        outputs = step.specs[0].shape[1:]
        is_plain &= bound["beta"] == 1 and bias is not None and bias.shape == outputs
    operands, is_transposed = [bound["A"], bound["B"]], bool(bound["transB"])
    if not is_plain:
        return None
    return _begun(step, product_and_more, operands, bound["C"], is_transposed=is_transposed)


def _begun(
    step: Step, called: Called, operands: Sequence[Operand], bias: Operand | None, **layout: Any
) -> Step:
    epilogue = NOTHING if bias is None else Epilogue(has_bias=True)
    biases = [] if bias is None else [bias]
    return calling(step, called, [*operands, *biases], step.title, epilogue=epilogue, **layout)


# -- what follows ---------------------------------------------------------------------------------


def extend_by_activation(passage: Passage, step: Step) -> Replacement:
    """An activation of what a product makes for it alone."""
    product = _product_below(passage, step.operands[0])
    activation = None if product is None else _activation(passage, step)
    if product is None or activation is None:
        return None
    epilogue = epilogue_of(product)
    if epilogue.activation is not None or epilogue.addend == "after":
        return None
    return _extended(passage, step, product, replace(epilogue, activation=activation))


def _product_below(passage: Passage, operand: Operand) -> Step | None:
    """The product that makes this for nobody else, be it in another shape."""
    reshaped = passage.inner(operand, *RESHAPES)
    source = operand if reshaped is None else reshaped.operands[0]
    return passage.inner(source, *FUSED)


def _activation(passage: Passage, step: Step) -> Activation | None:
    if calls(step, Clip, clip_to_attributes):
        return _clip(passage, step)
    for op, function, first, second in _FUNCTIONS:
        if calls(step, op):
            bound = given(step, op)
            if op is Gelu:
                return Activation("gelu_tanh" if bound["approximate"] == "tanh" else "gelu")
            return Activation(function, bound.get(first, 0.0), bound.get(second, 0.0))
    return Activation("hard_swish", 1 / 6, 0.5) if calls(step, HardSwish) else None


_Function = Literal["relu", "leaky_relu", "gelu", "swish", "tanh", "sigmoid", "hard_sigmoid", "elu"]
# What stands for alpha and for beta among an op's attributes.
_FUNCTIONS: tuple[tuple[Called, _Function, str, str], ...] = (
    (Relu, "relu", "", ""),
    (LeakyRelu, "leaky_relu", "alpha", ""),
    (Gelu, "gelu", "", ""),
    (Swish, "swish", "alpha", ""),
    (Tanh, "tanh", "", ""),
    (Sigmoid, "sigmoid", "", ""),
    (HardSigmoid, "hard_sigmoid", "alpha", "beta"),
    (Elu, "elu", "alpha", ""),
)


def _clip(passage: Passage, step: Step) -> Activation | None:
    found = limits(passage, step)
    if found is None or None in found[1:] or not found[1] <= found[2]:
        return None
    return Activation("clip", float(found[1]), float(found[2]))


def extend_by_sum(passage: Passage, step: Step) -> Replacement:
    """The sum of what a product makes for it alone and a bias, or an array of the same shape."""
    (made,) = step.specs
    for operand, other in (step.operands, step.operands[::-1]):
        product, spec = _product_below(passage, operand), passage.spec(other)
        if product is None or spec is None or passage.spec(operand) != made:
            continue
        epilogue = epilogue_of(product)
        if spec == made and epilogue.addend is None:
            place: Literal["before", "after"] = "after" if epilogue.activation else "before"
            return _extended(passage, step, product, replace(epilogue, addend=place), other)
        is_vector = spec == (made.shape[-1:], made.dtype) and product.specs[0] == made
        if is_vector and epilogue == NOTHING and calls(product, product_and_more):
            return _extended(passage, step, product, Epilogue(has_bias=True), other)
    return None


def epilogue_of(product: Step) -> Epilogue:
    """What follows a product so far."""
    epilogue: Epilogue = layout_of(product)["epilogue"]
    return epilogue


def layout_of(product: Step) -> dict[str, Any]:
    """The options of a product, with its epilogue."""
    return dict(call_of(product).attributes)


def _extended(
    passage: Passage, step: Step, product: Step, epilogue: Epilogue, *others: Operand
) -> Sequence[Step] | None:
    """The product with more after it; where it is read in another shape, that shape comes last."""
    called = function_of(call_of(product).function)
    layout = layout_of(product) | {"epilogue": epilogue}
    title = "FusedConv" if called is convolution_and_more else "FusedMatMul"
    if product.specs == step.specs:
        return [calling(step, called, [*product.operands, *others], title, **layout)]
    if not passage.can_add:
        return None
    shape, dtype = product.specs[0]
    ahead = []
    if epilogue.addend is not None and others:
        made = passage.fresh(shape, dtype)
        ahead.append(_reshaped(replace(step, results=made[:1], specs=product.specs), *others))
        others = made[:1]
    whole = passage.fresh(shape, dtype)
    operands = [*product.operands, *others]
    ahead.append(ahead_of(step, whole, called, operands, title, **layout))
    return [*ahead, _reshaped(step, whole[0])]


def _reshaped(step: Step, source: Operand) -> Step:
    """A step that makes this in the shape of what the other one makes."""
    shape = (HOLE, step.specs[0].shape)
    return calling(step, Reshape, (source,), Reshape.name, shape, allowzero=1)
