"""Hyper-connections: a residual network with several streams, which each block mixes."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def HyperConnectionPreMix(
    xp: Backend,
    streams: Array,
    pre_mix: Array,
    *,
    num_branches: int = 0,
    reduction_scale: float = 1.0,
) -> Array:
    """Return the sum of all streams, each times its gate."""
    grouped = _grouped(xp, streams, num_branches)
    gates = _gates(xp, "pre_mix", pre_mix, grouped.shape, may_be_flat=num_branches != 0)
    return xp.astype(xp.sum(grouped * gates, axis=-2) * reduction_scale, streams.dtype)


@op(domain="com.microsoft")
def HyperConnectionPostMix(
    xp: Backend,
    streams: Array,
    block_output: Array,
    post_mix: Array,
    stream_mix: Array | None = None,
    *,
    num_branches: int = 0,
) -> Array:
    """Add the output of a block, times a gate for each stream, to the streams or to their mix."""
    grouped = _grouped(xp, streams, num_branches)
    *before, branches, features = grouped.shape
    require_shape("block_output", block_output, (*before, features))
    gates = _gates(xp, "post_mix", post_mix, grouped.shape, may_be_flat=False)
    if stream_mix is not None:
        require_shape("stream_mix", stream_mix, (*before, branches, branches))
        grouped = xp.matmul(xp.matrix_transpose(wide(xp, stream_mix)), grouped)
    mixed = grouped + gates * xp.expand_dims(wide(xp, block_output), axis=-2)
    return xp.astype(xp.reshape(mixed, streams.shape), streams.dtype)


def _grouped(xp: Backend, streams: Array, num_branches: int) -> Array:
    """Return the streams with an axis for the branches before the last one."""
    if num_branches == 0 and streams.ndim >= 2:
        return wide(xp, streams)
    if num_branches < 1 or not streams.ndim or streams.shape[-1] % num_branches:
        raise ValueError(
            f"streams of shape {streams.shape} do not contain {num_branches} branches; without "
            "num_branches, the second to last axis must hold them"
        )
    shape = (*streams.shape[:-1], num_branches, streams.shape[-1] // num_branches)
    return xp.reshape(wide(xp, streams), shape)


def _gates(
    xp: Backend, name: str, mix: Array, shape: tuple[int, ...], *, may_be_flat: bool
) -> Array:
    """Return the gates of branches, or of their features, in a form that broadcasts to `shape`."""
    *before, branches, features = shape
    by_branch, by_feature = (*before, branches), (*before, branches * features)
    if mix.shape == by_branch:
        return xp.expand_dims(wide(xp, mix), axis=-1)
    if may_be_flat and mix.shape == by_feature:
        return xp.reshape(wide(xp, mix), shape)
    if mix.shape not in ((*by_branch, 1), shape):
        raise ValueError(
            f"{name} has shape {mix.shape}, but must have shape {by_branch}, {(*by_branch, 1)} or "
            f"{shape}"
        )
    return wide(xp, mix)
