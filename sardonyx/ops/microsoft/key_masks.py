"""The masks of com.microsoft's attention, in all their forms, as numbers to add to the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes

from sardonyx.backends.base import Backend
from sardonyx.backends.operations.scores import Tile
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
) -> Callable[[Tile], Array | None]:
    """Return a function of what to add to scores of this shape and dtype; None adds nothing.

    A masked key gets `filter_value`. If `past` is the number of keys before the first query's own,
    later keys get the lowest number. Both are finite: where all keys are masked, none is.
    """
    lowest = float(ml_dtypes.finfo(xp.numpy_dtype(dtype)).min)
    zero, least, masked = (
        xp.asarray(value, dtype=dtype) for value in (0.0, lowest, max(filter_value, lowest))
    )
    visible = None if mask is None else _visible(xp, mask, shape)
    if attention_bias is not None:
        require_broadcasts("attention_bias", attention_bias, shape)

    def of_tile(tile: Tile) -> Array | None:
        bias = None if visible is None else xp.where(tile.cut(visible), zero, masked)
        # onnxruntime lets the last query see all keys, so a single query needs no mask.
        if past is not None and shape[2] > 1:
            is_last = xp.equal(tile.queries, shape[2] - 1)
            own = (tile.keys <= tile.queries + past) | is_last
            bias = xp.where(own, zero if bias is None else bias, least)
        if attention_bias is None:
            return bias
        cut = tile.cut(attention_bias)
        return cut if bias is None else cut + bias

    return of_tile


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
