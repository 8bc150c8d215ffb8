"""Products of quantized matrices whose right side was prepared ahead of the calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.operations.products import PreparedFactor
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Ints
from sardonyx.ops.dtypes import INT32


@dataclass(frozen=True, slots=True)
class PreparedInput:
    """The call of an op with a prepared factor in place of one input."""

    function: Callable[..., Any]
    # The input's place among the op's arguments, and what the input was.
    position: int
    shape: Ints
    dtype: np.dtype[Any]
    is_centred: bool


def prepared_columns(xp: Backend, b: Array) -> Array:
    """Return the columns of 8-bit integers in the form that the backend's kernel reads."""
    return xp.columns_of_bytes(b)


def prepared_sums(xp: Backend, b: Array) -> Array:
    """Return the sum of each column of 8-bit integers as signed ones."""
    return _sums(xp, xp.signed_bytes(b), axis=-2)


def with_prepared_factor(
    xp: Backend,
    columns: Array,
    sums: Array,
    *arguments: Any,
    prepared: PreparedInput,
    **attributes: Any,
) -> Any:
    """Call an op with all its arguments but the prepared one, which is inserted."""
    dtype = xp.dtype(prepared.dtype)
    factor = PreparedFactor(prepared.shape, dtype, columns, sums, prepared.is_centred)
    before, after = arguments[: prepared.position], arguments[prepared.position :]
    return prepared.function(xp, *before, factor, *after, **attributes)


def centred_product_with(
    xp: Backend,
    a: Array,
    a_zero_point: Array | None,
    b: PreparedFactor,
    b_zero_point: Array | None,
) -> Array:
    """Return (a - a_zero_point) (b - b_zero_point), exact modulo 2**32.

    The factors and their zero points are those of signed integers, and are multiplied out.
    """
    signed = xp.signed_bytes(a)
    product = xp.product_with_columns(signed, b.columns)[..., : b.shape[-1]]
    left = _signed_zero_point(xp, a, a_zero_point)
    right = None if b.is_centred else _signed_zero_point(xp, b, b_zero_point)
    if right is not None:
        product = product - right * _sums(xp, signed, axis=-1)
    if left is not None:
        sums = b.sums if right is None else b.sums - b.shape[-2] * right
        product = product - left * sums
    return product


def _signed_zero_point(xp: Backend, x: Array | PreparedFactor, zero_point: Array | None) -> Any:
    """Return the zero point of the signed integers, or None if it is 0."""
    below = 0 if xp.isdtype(x.dtype, "signed integer") else 128
    if zero_point is None:
        return -below if below else None
    return xp.astype(zero_point, xp.dtype(INT32)) - below


def _sums(xp: Backend, x: Array, *, axis: int) -> Array:
    int32 = xp.dtype(INT32)
    return xp.sum(xp.astype(x, int32), axis=axis, keepdims=True, dtype=int32)
