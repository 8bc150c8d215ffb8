"""The masks of com.microsoft's attention, in all their forms, as numbers to add to the scores."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_broadcasts
from sardonyx.ops.definition import Ints


def score_bias(
    xp: Backend,
    shape: Ints,
    dtype: Any,
    mask: Array | None,
    attention_bias: Array | None,
    *,
    filter_value: float,
    past: Array | int | None,
) -> Array | None:
    """Return what to add to scores of this shape and dtype, or None if it is nothing.

    A masked key gets `filter_value`. If `past` is the number of keys before the first query's own,
    later keys get the lowest number. Both are finite: where all keys are masked, none is.
    """
    lowest = float(ml_dtypes.finfo(xp.numpy_dtype(dtype)).min)
    zero, least, masked = (
        xp.asarray(value, dtype=dtype) for value in (0.0, lowest, max(filter_value, lowest))
    )
    visible = None if mask is None else _visible(xp, mask, shape)
    bias = None if visible is None else xp.where(visible, zero, masked)
    # onnxruntime lets the last query see all keys, so a single query needs no mask.
    if past is not None and shape[2] > 1:
        query = xp.reshape(xp.arange(shape[2]), (-1, 1))
        own = (xp.arange(shape[3]) <= query + past) | xp.equal(query, shape[2] - 1)
        bias = xp.where(own, zero if bias is None else bias, least)
    if attention_bias is None:
        return bias
    require_broadcasts("attention_bias", attention_bias, shape)
    return attention_bias if bias is None else attention_bias + bias


def _visible(xp: Backend, mask: Array, shape: Ints) -> Array | None:
    """Return which keys each query may see, or None if it is all of them."""
    batch, _, queries, keys = shape
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch, 3 * batch + 2):
        return _within_lengths(xp, mask, batch, keys)
    if mask.ndim == 2 and mask.shape == (batch, keys):
        return xp.reshape(mask, (batch, 1, 1, keys)) > 0
    if mask.ndim == 2 and mask.shape[0] in (1, batch) and mask.shape[1] == 1:
        return None
    if mask.ndim == 3 and mask.shape == (batch, queries, keys):
        return xp.reshape(mask, (batch, 1, queries, keys)) > 0
    if mask.ndim == 4 and mask.shape[:2] == (batch, 1) and min(mask.shape[2:]) >= keys:
        return mask[:, :, keys - queries : keys, :keys] > 0
    raise ValueError(
        f"a mask of shape {mask.shape} does not fit {batch} samples of {queries} queries and "
        f"{keys} keys. It must hold lengths, or one number for each key, with or without queries."
    )


def _within_lengths(xp: Backend, lengths: Array, batch: int, keys: int) -> Array:
    """Read the ends of all samples, then their starts, if there are two numbers per sample.

    With three per sample and two more, the others say where the samples begin in packed inputs.
    """
    place = xp.arange(keys, dtype=lengths.dtype)
    visible = place < xp.reshape(lengths[:batch], (batch, 1, 1, 1))
    if lengths.shape[0] == 2 * batch:
        visible = visible & (place >= xp.reshape(lengths[batch:], (batch, 1, 1, 1)))
    return visible
