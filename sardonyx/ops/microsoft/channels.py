"""Arrays whose channels come last, as some operators of com.microsoft take them."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array


def channels_first(xp: Backend, x: Array, channels_last: int) -> Array:
    """Return (N, C, *spatial) of (N, *spatial, C) if the channels are last, else the same."""
    if not channels_last:
        return x
    if x.ndim < 3:
        raise ValueError(f"the input has shape {x.shape}, but needs at least three axes")
    return xp.moveaxis(x, -1, 1)


def channels_last_again(xp: Backend, y: Array, channels_last: int) -> Array:
    """Return (N, *spatial, C) of (N, C, *spatial) if the channels are to be last."""
    return xp.moveaxis(y, 1, -1) if channels_last else y
