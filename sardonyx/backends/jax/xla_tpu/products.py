"""Products of matrices of 64-bit integers, modulo 2**64, which XLA refuses for TPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Fewer products than these are summed as they are: one kernel instead of many.
FEWEST_FOR_DIGITS = 2**18

DIGITS = 8
BITS = 8

# The sum of so many products of two digits, each at most 2**14, fits int32.
LONGEST_SUM = 2**16


@jax.jit
def matmul(a: Any, b: Any) -> Any:
    """The product of stacks of matrices; a vector is a row on the left, a column on the right."""
    rows = a[None, :] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    y = _product(rows, columns)
    if a.ndim == 1:
        y = y[..., 0, :]
    return y[..., 0] if b.ndim == 1 else y


def tensordot(a: Any, b: Any, axes: Any) -> Any:
    """The sum of products over axes, as NumPy names them."""
    of_a, of_b = _summed(axes, a.ndim)
    of_a, of_b = ([axis % x.ndim for axis in of] for of, x in ((of_a, a), (of_b, b)))
    free_a, free_b = ([i for i in range(x.ndim) if i not in of] for of, x in ((of_a, a), (of_b, b)))
    length = math.prod(a.shape[axis] for axis in of_a)
    sizes = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
    rows = jnp.transpose(a, (*free_a, *of_a)).reshape(math.prod(sizes[0]), length)
    columns = jnp.transpose(b, (*of_b, *free_b)).reshape(length, math.prod(sizes[1]))
    return matmul(rows, columns).reshape(*sizes[0], *sizes[1])


def _summed(axes: Any, ndim: int) -> tuple[Sequence[int], Sequence[int]]:
    if isinstance(axes, int):
        return range(ndim - axes, ndim), range(axes)
    of_a, of_b = ([axis] if isinstance(axis, int) else axis for axis in axes)
    return of_a, of_b


def _product(a: Any, b: Any) -> Any:
    length = a.shape[-1]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if math.prod(stack) * a.shape[-2] * length * b.shape[-1] < FEWEST_FOR_DIGITS:
        return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2, dtype=a.dtype)
    cuts = range(0, length, LONGEST_SUM)
    parts = ((a[..., i : i + LONGEST_SUM], b[..., i : i + LONGEST_SUM, :]) for i in cuts)
    return sum(by_digits(*part) for part in parts)


def by_digits(a: Any, b: Any) -> Any:
    """The product from products of 8-bit digits, which have instructions.

    Digits are from -128 to 127. Those whose places add up to 8 or more are beyond 64 bits.
    """
    left, right = _digits(a), _digits(b)
    total: Any = None
    for place in range(DIGITS):
        products = (
            jnp.matmul(left[i], right[place - i], preferred_element_type=np.int32).astype(a.dtype)
            for i in range(place + 1)
        )
        part = sum(products) << np.array(BITS * place, a.dtype)
        total = part if total is None else total + part
    return total


def _digits(x: Any) -> list[Any]:
    digits = []
    for _ in range(DIGITS):
        digits.append(x.astype(np.int8))
        # The shift of a signed number keeps its sign; without one the last carries are dropped.
        x = (x - digits[-1].astype(x.dtype)) >> np.array(BITS, x.dtype)
    return digits
