"""Fourier transforms as products of matrices, for which TPUs are made.

XLA refuses those of complex128 for TPUs, and takes seconds to compile those of complex64. Older
versions of libtpu end the process where any complex128 is made of other types, so there is none.

A transform of length `d * m` is `m` transforms of length `d`, a rotation of each element, and `d`
transforms of length `m` (J. W. Cooley, J. W. Tukey, "An algorithm for the machine calculation of
complex Fourier series", Math. Comp. 19, 1965). A large prime length is a convolution (L. Bluestein,
"A linear filtering approach to the computation of discrete Fourier transform", 1970). Products
are of real numbers, for XLA has no others for TPUs.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

# The largest length that is one product with a matrix, and that of primes.
LARGEST_FACTOR = 128
LARGEST_MATRIX = 1024

# The real and the imaginary parts of an array.
Parts: TypeAlias = tuple[Any, Any]


def transformed(
    real: Any, imaginary: Any = None, *, axis: int, dtype: Any, inverse: bool = False
) -> Parts:
    """The parts of the transform along an axis, computed in `dtype`: float32 or float64."""
    real = jnp.moveaxis(real.astype(dtype), axis, -1)
    size = real.shape[-1]
    if imaginary is None:
        imaginary = jnp.zeros_like(real)
    else:
        imaginary = jnp.moveaxis(imaginary.astype(dtype), axis, -1)
    y = _transformed((real, imaginary), 1 if inverse else -1)
    real, imaginary = (jnp.moveaxis(part / size if inverse else part, -1, axis) for part in y)
    return real, imaginary


def _transformed(x: Parts, sign: int) -> Parts:
    """The sums of elements, each rotated; `sign` is the direction."""
    size = x[0].shape[-1]
    if size == 1:
        return x
    factor = next((d for d in range(min(LARGEST_FACTOR, size), 1, -1) if size % d == 0), 1)
    if factor == size or (factor == 1 and size <= LARGEST_MATRIX):
        return _by_matrix(x, sign)
    return _by_convolution(x, sign) if factor == 1 else _in_two_stages(x, factor, sign)


def _rotations(turns: np.ndarray[Any, Any], size: int, sign: int) -> np.ndarray[Any, Any]:
    """`exp(sign 2 pi i turns / size)`; the integers are reduced first, so that none is inexact."""
    result: np.ndarray[Any, Any] = np.exp(sign * 2j * np.pi * ((turns % size) / size))
    return result


def _by_matrix(x: Parts, sign: int) -> Parts:
    size = x[0].shape[-1]
    places = np.arange(size)
    matrix = _rotations(places[:, None] * places, size, sign)
    above = np.concatenate([matrix.real, matrix.imag], axis=1)
    below = np.concatenate([-matrix.imag, matrix.real], axis=1)
    both = np.concatenate([above, below]).astype(x[0].dtype)
    y = jnp.matmul(jnp.concat(x, axis=-1), both, precision=lax.Precision.HIGHEST)
    return y[..., :size], y[..., size:]


def _in_two_stages(x: Parts, factor: int, sign: int) -> Parts:
    size = x[0].shape[-1]
    rest = size // factor
    columns = [jnp.swapaxes(part.reshape(*part.shape[:-1], factor, rest), -1, -2) for part in x]
    first = _by_matrix((columns[0], columns[1]), sign)
    turns = np.arange(rest)[:, None] * np.arange(factor)
    real, imaginary = _times(first, _rotations(turns, size, sign))
    rows = jnp.swapaxes(real, -1, -2), jnp.swapaxes(imaginary, -1, -2)
    second = _transformed(rows, sign)
    real, imaginary = (jnp.swapaxes(part, -1, -2).reshape(x[0].shape) for part in second)
    return real, imaginary


def _by_convolution(x: Parts, sign: int) -> Parts:
    """With `2 j k = j j + k k - (k - j) (k - j)` the sum is a convolution, of any larger length."""
    size = x[0].shape[-1]
    length = 1 << (2 * size - 2).bit_length()
    places = np.arange(size)
    # Python's integers would be exact for any size, and int64 is for sizes below 2**31.
    chirp = _rotations(places * places, 2 * size, sign)
    kernel = np.zeros(length, np.complex128)
    kernel[:size] = chirp.conj()
    kernel[length - size + 1 :] = chirp[:0:-1].conj()
    spectrum = np.fft.fft(kernel) / length
    more = [(0, 0)] * (x[0].ndim - 1) + [(0, length - size)]
    real, imaginary = (jnp.pad(part, more) for part in _times(x, chirp))
    product = _times(_transformed((real, imaginary), -1), spectrum)
    real, imaginary = (part[..., :size] for part in _transformed(product, 1))
    return _times((real, imaginary), chirp)


def _times(x: Parts, by: np.ndarray[Any, Any]) -> Parts:
    real, imaginary = x
    by = by.reshape((1,) * (real.ndim - by.ndim) + by.shape)
    c, s = by.real.astype(real.dtype), by.imag.astype(real.dtype)
    return real * c - imaginary * s, real * s + imaginary * c
