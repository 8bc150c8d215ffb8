"""Matrix products and convolutions fused with an epilogue: bias, activation, added array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.backends.operations.products import PackedForm, PackedProduct, ProductChain
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Elu, Gelu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Swish
from sardonyx.ops.definition import Ints
from sardonyx.ops.elementwise import Tanh


def convolution_and_more(
    xp: Backend,
    X: Array,
    W: Array,
    *others: Array,
    epilogue: Epilogue,
    **layout: Any,
) -> Array:
    """Convolve, then apply the epilogue with `others`, its bias and addend; `W` must be finite.

    `layout` holds the strides, pads, dilations and groups of the convolution.
    """
    if xp.convolves_with(X, W, others, epilogue, **layout):
        return xp.convolution_and_more(X, W, *others, epilogue=epilogue, **layout)
    Y = _convolution(xp, X, W, **layout)
    return _with_epilogue(xp, Y, epilogue, others, (-1, *(1,) * (Y.ndim - 2)))


def _convolution(xp: Backend, X: Array, W: Array, **layout: Any) -> Array:
    if xp.convolves_with(X, W, (), NOTHING, **layout):
        return xp.convolution_and_more(X, W, epilogue=NOTHING, **layout)
    return convolution_by_finite(xp, X, W, **layout)


def convolution_of_channels_last(
    xp: Backend, X: Array, W: Array, *others: Array, epilogue: Epilogue, **layout: Any
) -> Array:
    """The same for arrays (N, *spatial, C) and filters (M, *kernel, C / groups)."""
    in_memory = {**layout, "is_channels_last": True}
    if xp.convolves_with(X, W, others, epilogue, **in_memory):
        return xp.convolution_and_more(X, W, *others, epilogue=epilogue, **in_memory)
    X, W = (xp.moveaxis(array, -1, 1) for array in (X, W))
    others = tuple([xp.moveaxis(y, -1, 1) if y.ndim > 1 else y for y in others])
    return xp.moveaxis(convolution_and_more(xp, X, W, *others, epilogue=epilogue, **layout), 1, -1)


def convolution_by_filters_with_channels_last(
    xp: Backend, X: Array, W: Array, *others: Array, epilogue: Epilogue, **layout: Any
) -> Array:
    """The first of them by filters (M, *kernel, C / groups), whose channels are moved in a view."""
    return convolution_and_more(xp, X, xp.moveaxis(W, -1, 1), *others, epilogue=epilogue, **layout)


def filters_with_channels_last(xp: Backend, W: Array) -> Array:
    """Return (M, C, *kernel) as (M, *kernel, C), as a row-major array."""
    moved = xp.moveaxis(W, 1, -1)
    # Libraries copy what they flatten.
    return xp.reshape(xp.reshape(moved, (-1,)), moved.shape)


def convolution_by_finite(xp: Backend, X: Array, W: Array, **layout: Any) -> Array:
    """Convolve with a finite weight: the backend may skip padding, as no product with 0 is NaN."""
    promise: dict[str, Any] = {"is_finite": True} if xp.skips_padding else {}
    return xp.convolution(X, W, **layout, **promise)


def product_and_more(
    xp: Backend, A: Array, B: Array, *others: Array, epilogue: Epilogue, is_transposed: bool
) -> Array:
    """Multiply rows by a matrix, then apply the epilogue with `others`, its bias and addend."""
    B = xp.matrix_transpose(B) if is_transposed else B
    if xp.multiplies_with(A, B, others, epilogue):
        return xp.matmul_and_more(A, B, *others, epilogue=epilogue)
    Y = xp.matmul(A, B)
    return _with_epilogue(xp, Y, epilogue, others, (-1,))


def packed(xp: Backend, weight: Array, *, form: PackedForm) -> Array:
    """Return a weight in the form that the backend's own kernel reads."""
    result: Array = form.pack(weight)
    return result


def packed_product(
    xp: Backend,
    x: Array,
    weight: Array,
    *others: Array,
    product: PackedProduct,
    epilogue: Epilogue = NOTHING,
    by_channel: Ints = (-1,),
) -> Array:
    """Run the backend's own kernel on a packed weight, then the rest of the epilogue."""
    if epilogue == NOTHING:
        whole: Array = product.run(x, weight, *others)
        return whole
    return _with_epilogue(xp, product.run(x, weight), epilogue, others, by_channel)


def product_chain(xp: Backend, *arguments: Array, chain: ProductChain) -> Array:
    """Run linked products by one kernel: on arrays, and the packed weight and bias of each."""
    result: Array = chain.run(*arguments)
    return result


def _with_epilogue(
    xp: Backend, Y: Array, epilogue: Epilogue, others: Sequence[Array], by_channel: Ints
) -> Array:
    if len(by_channel) > 1 and xp.leaves_channels_last:
        Y = xp.moveaxis(Y, 1, -1)
        moved = [xp.moveaxis(y, 1, -1) if y.ndim > 1 else y for y in others]
        return xp.moveaxis(_computed_after(xp, Y, epilogue, moved, (-1,)), -1, 1)
    return _computed_after(xp, Y, epilogue, others, by_channel)


def _computed_after(
    xp: Backend, Y: Array, epilogue: Epilogue, others: Sequence[Array], by_channel: Ints
) -> Array:
    rest = list(others)
    if epilogue.has_bias:
        Y = Y + xp.reshape(rest.pop(0), by_channel)
    if epilogue.addend == "before":
        Y = Y + rest.pop(0)
    if epilogue.activation is not None:
        Y = _ACTIVATIONS[epilogue.activation.function](xp, Y, epilogue.activation)
    return Y + rest.pop(0) if epilogue.addend == "after" else Y


def _hard_sigmoid(xp: Backend, x: Array, activation: Activation) -> Array:
    return HardSigmoid(xp, x, alpha=activation.alpha, beta=activation.beta)


_ACTIVATIONS: Mapping[str, Callable[[Backend, Any, Activation], Array]] = {
    "relu": lambda xp, x, _: Relu(xp, x),
    "leaky_relu": lambda xp, x, options: LeakyRelu(xp, x, alpha=options.alpha),
    "clip": lambda xp, x, options: xp.minimum(xp.maximum(x, options.alpha), options.beta),
    "gelu": lambda xp, x, _: Gelu(xp, x),
    "gelu_tanh": lambda xp, x, _: Gelu(xp, x, approximate="tanh"),
    "swish": lambda xp, x, options: Swish(xp, x, alpha=options.alpha),
    "tanh": lambda xp, x, _: Tanh(xp, x),
    "sigmoid": lambda xp, x, _: Sigmoid(xp, x),
    "hard_swish": lambda xp, x, options: x * _hard_sigmoid(xp, x, options),
    "hard_sigmoid": _hard_sigmoid,
    "elu": lambda xp, x, options: Elu(xp, x, alpha=options.alpha),
}
