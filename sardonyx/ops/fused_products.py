"""Products and what follows them at once: a bias, an activation, an array that is added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.backends.operations.products import PackedProduct
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
    strides: Ints,
    pads: Sequence[tuple[int, int]],
    dilations: Ints,
    groups: int,
) -> Array:
    """`W` is finite where there is padding; `others` are the bias and the addend, if any."""
    layout = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    Y = convolution_by_finite(xp, X, W, **layout)
    return _followed(xp, Y, epilogue, others, (-1, *(1,) * (Y.ndim - 2)))


def convolution_by_finite(xp: Backend, X: Array, W: Array, **layout: Any) -> Array:
    """A convolution for which padding may be skipped: nothing in the weight times 0 is NaN."""
    promise: dict[str, Any] = {"is_finite": True} if xp.skips_padding else {}
    return xp.convolution(X, W, **layout, **promise)


def product_and_more(
    xp: Backend, A: Array, B: Array, *others: Array, epilogue: Epilogue, is_transposed: bool
) -> Array:
    """Of rows and a matrix; `others` are the bias and the addend, if the epilogue has them."""
    Y = xp.matmul(A, xp.matrix_transpose(B) if is_transposed else B)
    return _followed(xp, Y, epilogue, others, (-1,))


def packed(xp: Backend, weight: Array, *, product: PackedProduct) -> Array:
    """A weight as the backend's own kernel wants it."""
    result: Array = product.pack(weight)
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
    """The backend's own kernel, for a weight that was packed, and what it leaves of an epilogue."""
    if epilogue == NOTHING:
        whole: Array = product.run(x, weight, *others)
        return whole
    return _followed(xp, product.run(x, weight), epilogue, others, by_channel)


def _followed(
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


def _clipped(xp: Backend, x: Array, how: Activation) -> Array:
    return xp.minimum(xp.maximum(x, how.alpha), how.beta)


def _line(xp: Backend, x: Array, how: Activation) -> Array:
    return HardSigmoid(xp, x, alpha=how.alpha, beta=how.beta)


_ACTIVATIONS: Mapping[str, Callable[[Backend, Any, Activation], Array]] = {
    "relu": lambda xp, x, _: Relu(xp, x),
    "leaky_relu": lambda xp, x, how: LeakyRelu(xp, x, alpha=how.alpha),
    "clip": _clipped,
    "gelu": lambda xp, x, _: Gelu(xp, x),
    "gelu_tanh": lambda xp, x, _: Gelu(xp, x, approximate="tanh"),
    "swish": lambda xp, x, how: Swish(xp, x, alpha=how.alpha),
    "tanh": lambda xp, x, _: Tanh(xp, x),
    "sigmoid": lambda xp, x, _: Sigmoid(xp, x),
    "hard_swish": lambda xp, x, how: x * _line(xp, x, how),
    "hard_sigmoid": _line,
    "elu": lambda xp, x, how: Elu(xp, x, alpha=how.alpha),
}
