"""Sampling of images, of com.microsoft."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import INT64
from sardonyx.ops.grid import grid_sample_of_images
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def GridSample(
    xp: Backend, X: Array, Grid: Array, **others: Annotated[Any, grid_sample_of_images]
) -> Array:
    return grid_sample_of_images(xp, X, Grid, **others)


@op(domain="com.microsoft")
def CropAndResize(
    xp: Backend,
    X: Array,
    rois: Array,
    batch_indices: Array,
    crop_size: Ints,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Array:
    """Resize regions of images to one size; their corners come to lie on those of the result."""
    require_one_of("mode", mode, ("bilinear", "nearest"))
    shape = _shape_of_crops(X, rois, batch_indices, crop_size)
    xp.allow(shape, xp.numpy_dtype(X.dtype), copies=4)
    if 0 in shape:
        return xp.zeros(shape, dtype=X.dtype)
    xp.require(batch_indices, Within("batch_indices", 0, X.shape[0] - 1))
    down, across = (
        _points(xp, wide(xp, rois), axis, crop_size[axis], X.shape[2 + axis]) for axis in range(2)
    )
    pixels = xp.permute_dims(X, (0, 2, 3, 1))
    image = xp.reshape(xp.maximum(batch_indices, 0), (-1, 1, 1))
    if mode == "nearest":
        Y = xp.gather(pixels, (image, down.nearest(xp), across.nearest(xp)))
    else:
        pixels = wide(xp, pixels)

        def along_row(row: Array) -> Array:
            left, right = (xp.gather(pixels, (image, row, column)) for column in across.both)
            return _between(left, right, across.share)

        top, bottom = map(along_row, down.both)
        Y = _between(top, bottom, down.share)
    is_inside = xp.expand_dims(down.is_inside & across.is_inside, axis=-1)
    outside = xp.asarray(extrapolation_value, dtype=Y.dtype)
    return xp.astype(xp.permute_dims(xp.where(is_inside, Y, outside), (0, 3, 1, 2)), X.dtype)


def _shape_of_crops(
    X: Array, rois: Array, batch_indices: Array, crop_size: Ints
) -> tuple[int, ...]:
    if X.ndim != 4 or batch_indices.ndim != 1:
        raise ValueError(
            f"X has shape {X.shape} and batch_indices has shape {batch_indices.shape}, but they "
            "must have 4 axes and 1 axis"
        )
    if len(crop_size) != 2 or min(crop_size) < 1:
        raise ValueError(f"crop_size is {crop_size}, but must be a positive height and width")
    require_shape("rois", rois, (batch_indices.shape[0], 4))
    shape = (batch_indices.shape[0], X.shape[1], *crop_size)
    if not X.size and 0 not in shape:
        raise ValueError(f"X of shape {X.shape} has no elements to sample")
    return shape


class _Points(NamedTuple):
    """The pixels on both sides of each point along one axis, and the share of the second one."""

    both: tuple[Array, Array]
    share: Array
    is_inside: Array

    def nearest(self, xp: Backend) -> Array:
        return xp.where(self.share[..., 0] >= 0.5, self.both[1], self.both[0])


def _points(xp: Backend, rois: Array, axis: int, count: int, length: int) -> _Points:
    """Return `count` evenly spaced points in each region; arrays are (regions, rows, columns)."""
    start, end = (xp.reshape(rois[:, i], (-1, 1, 1)) for i in (axis, 2 + axis))
    farthest = float(length - 1)
    if count == 1:
        at = 0.5 * (start + end) * farthest
    else:
        number = xp.reshape(xp.arange(count), (-1, 1) if axis == 0 else (-1,))
        step = xp.quotient((end - start) * farthest, float(count - 1))
        at = start * farthest + xp.astype(number, rois.dtype) * step
        # The last point is the end itself, which rounding errors must not move out of the image.
        at = xp.where(xp.equal(number, count - 1), end * farthest, at)
    is_inside = (at >= 0) & (at <= farthest)
    at = xp.where(is_inside, at, 0.0)
    lower = xp.floor(at)
    both = (xp.astype(side, xp.dtype(INT64)) for side in (lower, xp.ceil(at)))
    return _Points((next(both), next(both)), xp.expand_dims(at - lower, axis=-1), is_inside)


def _between(low: Array, high: Array, share: Array) -> Array:
    return low + (high - low) * share
