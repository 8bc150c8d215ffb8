"""A product with weights and what follows it: one step, where the backend has a kernel for it.

A bias, an activation, and the sum with an array of the same shape, before the activation or after.
The operations and their order stay; a kernel may round their results only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.graph.rewriting.pads import windows_of
from sardonyx.graph.rewriting.rewriter import (
    RESHAPES,
    Called,
    Passage,
    Replacement,
    attributes_of,
    call_of,
    calls,
    instead_of,
    orders,
    parameters_of,
)
from sardonyx.graph.rewriting.swish import clipping
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
from sardonyx.ops.convolution import Conv
from sardonyx.ops.elementwise import Clip, Tanh, clip_to_attributes
from sardonyx.ops.fused_products import convolution_and_more, product_and_more
from sardonyx.ops.layout import Reshape
from sardonyx.ops.linalg import Gemm, MatMul

PRODUCTS: tuple[Called, ...] = (Conv, Gemm, MatMul)
FUSED: tuple[Called, ...] = (convolution_and_more, product_and_more)


# -- the product ----------------------------------------------------------------------------------


def begin_epilogue(passage: Passage, step: Step) -> Replacement:
    """Turn a product with a weight into one that an epilogue can follow."""
    dtype = step.specs[0].dtype
    begin = _convolution if calls(step, Conv) else _matrix_product
    product = begin(passage, step) if kind_of(dtype) == "real floating" else None
    if product is None or not passage.is_fixed(product.operands[1]):
        return None
    if all(map(passage.is_fixed, product.operands)):
        return None  # The host computes it once, ahead of all calls, and needs no kernel.
    if calls(step, Conv) and not _may_skip_padding(passage, product):
        return None
    dtypes = {passage.spec(operand).dtype for operand in product.operands}
    return [product] if dtypes == {dtype} else None


def skip_padding(passage: Passage, step: Step) -> Replacement:
    """Compute no products with the zeros of padding, if the weight of a convolution is finite."""
    product = _convolution(passage, step)
    return [product] if _may_skip_padding(passage, product) else None


def _may_skip_padding(passage: Passage, convolution: Step) -> bool:
    pads = attributes_of(convolution)["pads"]
    return not any(map(any, pads)) or passage.is_finite(convolution.operands[1])


def _convolution(passage: Passage, step: Step) -> Step:
    values = parameters_of(step, Conv)
    windows = windows_of(passage, step)
    return _begun(
        step,
        convolution_and_more,
        [values["X"], values["W"]],
        values["B"],
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        groups=values["group"],
    )


def _matrix_product(passage: Passage, step: Step) -> Step | None:
    if calls(step, MatMul):
        ranks = [len(passage.spec(operand).shape) for operand in step.operands]
        if ranks[0] < 2 or ranks[1] != 2:
            return None
        return _begun(step, product_and_more, step.operands, None, is_transposed=False)
    values = parameters_of(step, Gemm)
    bias, is_plain = values["C"], not values["transA"] and values["alpha"] == 1
    if bias is not None:
        is_plain &= values["beta"] == 1 and passage.spec(bias).shape == step.specs[0].shape[1:]
    if not is_plain:
        return None
    operands, is_transposed = [values["A"], values["B"]], bool(values["transB"])
    return _begun(step, product_and_more, operands, bias, is_transposed=is_transposed)


def _begun(
    step: Step, called: Called, operands: Sequence[Operand], bias: Operand | None, **layout: Any
) -> Step:
    epilogue = NOTHING if bias is None else Epilogue(has_bias=True)
    biases = [] if bias is None else [bias]
    whole = [*operands, *biases]
    return instead_of(step, called, whole, title=step.title, epilogue=epilogue, **layout)


# -- what follows ---------------------------------------------------------------------------------


def extend_by_activation(passage: Passage, step: Step) -> Replacement:
    """Join a product and the activation that alone reads it."""
    product = _product_below(passage, step.operands[0])
    activation = None if product is None else _activation(passage, step)
    if product is None or activation is None:
        return None
    epilogue: Epilogue = attributes_of(product)["epilogue"]
    if epilogue.activation is not None or epilogue.addend == "after":
        return None
    return _extended(passage, step, product, replace(epilogue, activation=activation))


def _product_below(passage: Passage, operand: Operand) -> Step | None:
    """The product whose only reader reads this operand, perhaps in another shape."""
    while (reshaped := passage.sole_producer(operand, *RESHAPES)) is not None:
        operand = reshaped.operands[0]
    return passage.sole_producer(operand, *FUSED)


def _activation(passage: Passage, step: Step) -> Activation | None:
    clipped = clipping(passage, step)
    if clipped is not None and clipped.low is not None and clipped.high is not None:
        low, high = float(clipped.low), float(clipped.high)
        return Activation("clip", low, high) if low <= high else None
    for op, activation_of in _ACTIVATIONS.items():
        if calls(step, op):
            return activation_of(parameters_of(step, op))
    return None


# By op: the activation with these attributes.
_ACTIVATIONS: dict[Called, Callable[[dict[str, Any]], Activation]] = {
    Relu: lambda _: Activation("relu"),
    LeakyRelu: lambda values: Activation("leaky_relu", values["alpha"]),
    Gelu: lambda v: Activation("gelu_tanh" if v["approximate"] == "tanh" else "gelu"),
    Swish: lambda values: Activation("swish", values["alpha"]),
    Tanh: lambda _: Activation("tanh"),
    Sigmoid: lambda _: Activation("sigmoid"),
    HardSwish: lambda _: Activation("hard_swish", 1 / 6, 0.5),
    HardSigmoid: lambda values: Activation("hard_sigmoid", values["alpha"], values["beta"]),
    Elu: lambda values: Activation("elu", values["alpha"]),
}
ACTIVATIONS: tuple[Called, ...] = (*_ACTIVATIONS, Clip, clip_to_attributes)


def extend_by_sum(passage: Passage, step: Step) -> Replacement:
    """Join a product and the sum that alone reads it: with a bias, or an array of its shape."""
    (total,) = step.specs
    for operand, other in orders(step):
        product, spec = _product_below(passage, operand), passage.spec(other)
        if product is None or passage.spec(operand) != total:
            continue
        epilogue: Epilogue = attributes_of(product)["epilogue"]
        if spec == total and epilogue.addend is None:
            extended = replace(epilogue, addend="after" if epilogue.activation else "before")
            return _extended(passage, step, product, extended, other)
        is_vector = spec == (total.shape[-1:], total.dtype) and product.specs[0] == total
        if is_vector and epilogue == NOTHING and calls(product, product_and_more):
            return _extended(passage, step, product, Epilogue(has_bias=True), other)
    return None


def _extended(
    passage: Passage, step: Step, product: Step, epilogue: Epilogue, *addends: Operand
) -> Sequence[Step]:
    """The product with more after it; where it is read in another shape, that shape comes last."""
    called: Called = call_of(product).function
    title = "FusedConv" if called is convolution_and_more else "FusedMatMul"
    attributes = attributes_of(product) | {"title": title, "epilogue": epilogue}
    if product.specs == step.specs:
        return [instead_of(step, called, [*product.operands, *addends], **attributes)]
    shape, (spec,) = (HOLE, product.specs[0].shape), product.specs
    reshaped = [
        passage.ahead_of(step, spec, Reshape, (addend,), shape, allowzero=1) for addend in addends
    ]
    operands = [*product.operands, *(each.results[0] for each in reshaped)]
    whole = passage.ahead_of(step, spec, called, operands, **attributes)
    shape = (HOLE, step.specs[0].shape)
    return [*reshaped, whole, instead_of(step, Reshape, whole.results, shape, allowzero=1)]
