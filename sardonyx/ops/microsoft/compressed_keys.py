"""Entries that each stand for several tokens, as DeepSeek's indexer compresses them."""

from __future__ import annotations

import math
from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import FLOAT32


class Windows(NamedTuple):
    """Projections of the tokens that no entry stands for yet, and how they divide into windows."""

    # (2, batch, length, 2 * size): keys and gates; first those of past calls.
    projections: Array
    # The number of tokens of the last complete window, if it is there.
    overlap: int
    # The number of windows that this call completes.
    complete: int
    ratio: int

    @classmethod
    def of(
        cls, xp: Backend, buffer: Array | None, key: Array, gate: Array, size: int, ratio: int
    ) -> Windows:
        require_shape("gate", gate, key.shape)
        if key.ndim != 3 or key.shape[2] != 2 * size:
            raise ValueError(f"key has shape {key.shape}, but must be (batch, length, {2 * size})")
        new = xp.stack([key, gate])
        if buffer is None:
            buffer = xp.zeros((2, key.shape[0], 0, 2 * size), dtype=key.dtype)
        batch, length = key.shape[:2]
        if buffer.ndim != 4 or buffer.shape != (2, batch, buffer.shape[2], 2 * size):
            raise ValueError(
                f"past_proj_buffer has shape {buffer.shape}, but must be (2, {batch}, length, "
                f"{2 * size})"
            )
        held = buffer.shape[2]
        if held >= 2 * ratio:
            raise ValueError(f"past_proj_buffer has {held} tokens, but must have below {2 * ratio}")
        overlap = ratio if held >= ratio else 0
        projections = xp.concat([buffer, new], axis=2)
        return cls(projections, overlap, (held - overlap + length) // ratio, ratio)

    def rest(self) -> Array:
        """Return what the next call needs: the last complete window, and the tokens after it."""
        start = self.overlap + (self.complete - 1) * self.ratio if self.complete else 0
        return self.projections[:, :, start:, :]

    def pooled(self, xp: Backend, position_bias: Array) -> Array:
        """Return (batch, windows, size): the mean of each window and the one before, by gates.

        The first half of the elements is that of the window before.
        """
        _, batch, _, width = self.projections.shape
        ratio, count = self.ratio, self.complete
        wide = xp.dtype(FLOAT32)
        rows = xp.astype(self.projections, wide)
        end = self.overlap + count * ratio
        own = xp.reshape(rows[:, :, self.overlap : end, :], (2, batch, count, ratio, width))
        before = rows[:, :, : end - ratio, :] if count else rows[:, :, :0, :]
        if not self.overlap and count:
            nothing = [
                xp.full((1, batch, ratio, width), value, dtype=wide) for value in (0.0, -math.inf)
            ]
            before = xp.concat([xp.concat(nothing), before], axis=2)
        before = xp.reshape(before, (2, batch, count, ratio, width))
        return mean_of_windows(xp, before, own, position_bias)


def mean_of_windows(xp: Backend, before: Array, own: Array, position_bias: Array) -> Array:
    """Return the mean of two windows by gates, from keys and gates (2, ..., ratio, 2 * size).

    Of the window before it takes the first half of the elements.
    """
    ratio, width = own.shape[-2:]
    size = width // 2
    require_shape("position_bias", position_bias, (ratio, width))
    bias = xp.astype(position_bias, own.dtype)
    slots = xp.concat([before[..., :size], own[..., size:]], axis=-2)
    bias = xp.concat([bias[:, :size], bias[:, size:]], axis=0)
    return _mean(xp, slots[0, ...], slots[1, ...] + bias)


def _mean(xp: Backend, values: Array, gates: Array) -> Array:
    """Return the means of the last axis but one; zeros where the gates have no finite sum."""
    if not values.size:
        return values[..., 0, :]
    top = xp.max(gates, axis=-2, keepdims=True)
    finite = xp.isfinite(top)
    weights = xp.exp(xp.where(finite, gates - xp.where(finite, top, 0.0), -math.inf))
    total = xp.sum(weights, axis=-2)
    has_sum = total > 0
    mixed = xp.sum(weights * values, axis=-2)
    zero = xp.zeros_like(mixed)
    return xp.where(has_sum, mixed / xp.where(has_sum, total, xp.ones_like(total)), zero)
