"""Fourier transforms of com.microsoft, and products of complex numbers stored as pairs."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import signal
from sardonyx.ops.definition import op
from sardonyx.ops.precision import at_least_float32

# -- transforms -----------------------------------------------------------------------------------


@op(domain="com.microsoft")
def Rfft(
    xp: Backend, X: Array, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
) -> Array:
    """Transform the last `signal_ndim` axes; of the last one, keep the first half."""
    _check_options(normalized, onesided)
    _check_rank(X.shape, signal_ndim)
    Y = signal.DFT(xp, xp.expand_dims(X, axis=-1), axis=-2, onesided=1)
    for axis in range(X.ndim - signal_ndim, X.ndim - 1):
        Y = signal.DFT(xp, Y, axis=axis)
    return Y


@op(domain="com.microsoft")
def Irfft(
    xp: Backend, X: Array, *, normalized: int = 0, onesided: int = 1, signal_ndim: int
) -> Array:
    """Invert `Rfft` of a signal whose last axis has an even length."""
    _check_options(normalized, onesided)
    if X.shape[-1:] != (2,):
        raise ValueError(f"X has shape {X.shape}, but must end in an axis of 2: the parts")
    _check_rank(X.shape[:-1], signal_ndim)
    for axis in range(X.ndim - 1 - signal_ndim, X.ndim - 2):
        X = signal.DFT(xp, X, axis=axis, inverse=1)
    Y = signal.DFT(xp, X, axis=-2, inverse=1, onesided=1)
    return xp.reshape(Y, Y.shape[:-1])


def _check_options(normalized: int, onesided: int) -> None:
    if normalized or not onesided:
        raise ValueError(
            f"normalized is {normalized} and onesided is {onesided}, but they must be 0 and 1"
        )


def _check_rank(shape: tuple[int, ...], signal_ndim: int) -> None:
    if not 1 <= signal_ndim <= len(shape):
        raise ValueError(
            f"signal_ndim is {signal_ndim}, but must be from 1 to {len(shape)}, the number of axes"
        )


# -- products -------------------------------------------------------------------------------------


@op(domain="com.microsoft")
def ComplexMul(xp: Backend, A: Array, B: Array) -> Array:
    _check_parts(A, B)
    return _product(xp, A, B, sign=1)


@op(domain="com.microsoft")
def ComplexMulConj(xp: Backend, A: Array, B: Array) -> Array:
    """Return the product of A and the conjugate of B."""
    _check_parts(A, B)
    return _product(xp, A, B, sign=-1)


def _check_parts(A: Array, B: Array) -> None:
    if A.shape[-1:] != (2,) or B.shape[-1:] != (2,):
        raise ValueError(
            f"shapes {A.shape} and {B.shape} must end in an axis of 2, which holds the real and "
            "the imaginary part"
        )


@at_least_float32
def _product(xp: Backend, A: Array, B: Array, *, sign: int) -> Array:
    (a, b), (c, d) = ((x[..., 0], x[..., 1]) for x in (A, B))
    d = d * sign
    return xp.stack([a * c - b * d, a * d + b * c], axis=-1)
