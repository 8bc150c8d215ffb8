"""Activations of com.microsoft, with and without a bias before them."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op


@op(domain="com.microsoft")
def Gelu(xp: Backend, X: Array) -> Array:
    return activation.Gelu(xp, X)


@op(domain="com.microsoft")
def BiasGelu(xp: Backend, A: Array, B: Array) -> Array:
    require_shape("B", B, A.shape[-1:])
    return activation.Gelu(xp, A + B)


@op(domain="com.microsoft")
def FastGelu(xp: Backend, X: Array, bias: Array | None = None) -> Array:
    if bias is not None:
        require_shape("bias", bias, X.shape[-1:])
        X = X + bias
    return activation.Gelu(xp, X, approximate="tanh")


@op(domain="com.microsoft")
def QuickGelu(xp: Backend, X: Array, *, alpha: float = 1.702) -> Array:
    """Return `X * sigmoid(alpha * X)`."""
    return X * activation.Sigmoid(xp, X * alpha)
