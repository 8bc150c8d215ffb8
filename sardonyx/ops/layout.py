"""Operators that move elements or change the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.deviations import ZERO_BESIDE_UNKNOWN, accept
from sardonyx.ops.axes import axes_within, axis_within, sliced
from sardonyx.ops.definition import Alias, Ints, Outputs, op

# -- the same elements under another shape --------------------------------------------------------


@op
def Reshape(xp: Backend, data: Array, shape: Ints, *, allowzero: int = 0) -> Alias:
    """A 0 keeps the size of its axis (unless `allowzero`); one -1 is computed from the others."""
    return _reshaped(xp, data, _filled(data.shape, shape, bool(allowzero)))


@Reshape.before(5)
def reshape_to_attribute(
    xp: Backend, data: Array, *, shape: Ints | None = None, consumed_inputs: Ints | None = None
) -> Alias:
    return _reshaped(xp, data, _filled(data.shape, shape or (), allow_zero=False))


def _filled(old: Sequence[int], new: Sequence[int], allow_zero: bool) -> tuple[int, ...]:
    if min(new, default=0) < -1 or new.count(-1) > 1:
        raise ValueError(f"shape {tuple(new)} has a size below -1 or more than one -1")
    if not allow_zero:
        if any(size == 0 for size in new[len(old) :]):
            raise ValueError(f"shape {tuple(new)} keeps an axis that rank {len(old)} does not have")
        new = [old[axis] if size == 0 else size for axis, size in enumerate(new)]
    product = math.prod(size for size in new if size != -1)
    total = math.prod(old)
    if allow_zero and -1 in new and product == 0 == total:
        accept(ZERO_BESIDE_UNKNOWN, f"shape {tuple(new)} has both")
        product, total = (math.prod(size for size in shape if size > 0) for shape in (new, old))
    if product != total if -1 not in new else product == 0 or total % product != 0:
        count = math.prod(old)
        raise ValueError(f"{count} elements of shape {tuple(old)} do not fill shape {tuple(new)}")
    return tuple(total // product if size == -1 else size for size in new)


def _reshaped(xp: Backend, x: Array, shape: tuple[int, ...]) -> Array:
    return x if shape == x.shape else xp.reshape(x, shape)


@op
def Flatten(xp: Backend, input: Array, *, axis: int = 1) -> Alias:
    rank = len(input.shape)
    if not -rank <= axis <= rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    axis = axis + rank if axis < 0 else axis
    shape = (math.prod(input.shape[:axis]), math.prod(input.shape[axis:]))
    return _reshaped(xp, input, shape)


@op
def Squeeze(xp: Backend, data: Array, axes: Ints | None = None) -> Alias:
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(data.shape) if size == 1)
    axes = axes_within(axes, len(data.shape))
    if any(data.shape[axis] != 1 for axis in axes):
        raise ValueError(f"axes {axes} of shape {data.shape} are not all of size 1")
    shape = tuple(size for axis, size in enumerate(data.shape) if axis not in axes)
    return _reshaped(xp, data, shape)


@op
def Unsqueeze(xp: Backend, data: Array, axes: Ints) -> Alias:
    rank = len(data.shape) + len(axes)
    added = {*axes_within(axes, rank)}
    sizes = iter(data.shape)
    return _reshaped(xp, data, tuple(1 if axis in added else next(sizes) for axis in range(rank)))


# -- joining, cutting, repeating ------------------------------------------------------------------


@op
def Concat(xp: Backend, *inputs: Array, axis: int) -> Array:
    if not inputs:
        raise ValueError("there is nothing to concatenate")
    axis = axis_within(axis, inputs[0].ndim)
    if len({(*x.shape[:axis], None, *x.shape[axis + 1 :]) for x in inputs}) > 1:
        shapes = ", ".join(str(x.shape) for x in inputs)
        raise ValueError(f"shapes {shapes} differ on another axis than {axis}")
    return inputs[0] if len(inputs) == 1 else xp.concat(list(inputs), axis=axis)


@Concat.before(4)
def concat_along_channels_by_default(xp: Backend, *inputs: Array, axis: int = 1) -> Array:
    return Concat(xp, *inputs, axis=axis)


@op
def Split(
    xp: Backend,
    input: Array,
    split: Ints | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: Outputs,
) -> tuple[Array, ...]:
    axis = axis_within(axis, input.ndim)
    size = input.shape[axis]
    if split is None:
        # Only a node with num_outputs may have a smaller last part.
        if num_outputs not in (None, outputs):
            raise ValueError(f"num_outputs is {num_outputs}, but there are {outputs} outputs")
        split = _even_parts(size, outputs, uneven=num_outputs is not None)
    if len(split) != outputs or sum(split) != size or min(split) < 0:
        raise ValueError(f"parts {split} do not make {outputs} outputs of an axis of size {size}")
    return (input,) if len(split) == 1 else tuple(parts_along(input, axis, split))


def parts_along(x: Array, axis: int, sizes: Sequence[int]) -> list[Array]:
    """Divide `x` along an axis into parts of these sizes."""
    return [sliced(x, axis, a, b) for a, b in pairwise(np.cumsum([0, *sizes]).tolist())]


def _even_parts(size: int, count: int, uneven: bool) -> tuple[int, ...]:
    if count < 1 or (size % count and not uneven):
        raise ValueError(f"an axis of size {size} does not split into {count} equal parts")
    part = -(-size // count)
    return (*(part,) * (count - 1), size - part * (count - 1))


@op
def Expand(xp: Backend, input: Array, shape: Ints) -> Array:
    """Broadcast both ways: a 1 in `shape` keeps the size of the axis."""
    target = np.broadcast_shapes(input.shape, shape)
    return input if target == input.shape else xp.broadcast_to(input, target)


@op
def Tile(xp: Backend, input: Array, repeats: Ints) -> Array:
    if len(repeats) != input.ndim or min(repeats, default=0) < 0:
        raise ValueError(f"repeats {repeats} are not one count per axis of shape {input.shape}")
    return input if set(repeats) <= {1} else xp.tile(input, repeats)


@Tile.before(6)
def tile_of_one_axis(xp: Backend, input: Array, tiles: int, axis: int) -> Array:
    axis = axis_within(axis, input.ndim)
    return Tile(xp, input, tuple(tiles if i == axis else 1 for i in range(input.ndim)))


# -- padding --------------------------------------------------------------------------------------


@op
def Pad(
    xp: Backend,
    data: Array,
    pads: Ints,
    constant_value: Array | None = None,
    axes: Ints | None = None,
    *,
    mode: str = "constant",
) -> Array:
    axes = axes_within(range(data.ndim) if axes is None else axes, data.ndim)
    value = _blank(xp, data) if constant_value is None else xp.reshape(constant_value, ())
    return _padded(xp, data, _widths(data, pads, axes), mode, value)


@Pad.before(11)
def pad_with_attribute(
    xp: Backend, data: Array, *, pads: Ints, mode: str = "constant", value: float = 0.0
) -> Array:
    return _padded(xp, data, _widths(data, pads, range(data.ndim)), mode, value)


@Pad.before(2)
def pad_with_paddings(
    xp: Backend, data: Array, *, paddings: Ints, mode: str = "constant", value: float = 0.0
) -> Array:
    return _padded(xp, data, _widths(data, paddings, range(data.ndim)), mode, value)


def _blank(xp: Backend, x: Array) -> int | bool | str:
    dtype = xp.numpy_dtype(x.dtype)
    return "" if dtype.kind == "O" else dtype.kind != "b" and 0


@op
def CenterCropPad(
    xp: Backend, input_data: Array, shape: Ints, *, axes: Ints | None = None
) -> Array:
    axes = axes_within(range(input_data.ndim) if axes is None else axes, input_data.ndim)
    if len(shape) != len(axes) or any(size < 0 for size in shape):
        raise ValueError(f"shape {shape} must be {len(axes)} sizes, none of them negative")
    widths = [(0, 0)] * input_data.ndim
    for axis, size in zip(axes, shape, strict=True):
        more = abs(size - input_data.shape[axis])
        sign = 1 if size > input_data.shape[axis] else -1
        widths[axis] = (sign * (more // 2), sign * (more - more // 2))
    return _padded(xp, input_data, widths, "constant", _blank(xp, input_data))


def _widths(x: Array, pads: Ints, axes: Sequence[int]) -> list[tuple[int, int]]:
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads {pads} are not two numbers for each of {len(axes)} axes")
    widths = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        if min(before, 0) + min(after, 0) + x.shape[axis] < 0:
            raise ValueError(f"pads {pads} take away more than axis {axis} of shape {x.shape} has")
        widths[axis] = (before, after)
    return widths


def _padded(
    xp: Backend, x: Array, widths: Sequence[tuple[int, int]], mode: str, value: Any
) -> Array:
    """Negative widths crop first, so that a mode repeats only the remaining elements."""
    if any(min(width) < 0 for width in widths):
        ends = [size + min(after, 0) for size, (_, after) in zip(x.shape, widths, strict=True)]
        cut = (slice(max(-before, 0), end) for (before, _), end in zip(widths, ends, strict=True))
        x = x[tuple(cut)]
    widths = [(max(before, 0), max(after, 0)) for before, after in widths]
    if not any(map(any, widths)):
        return x
    if mode == "constant":
        return xp.pad(x, widths, value)
    xp.allow_padded(x, widths)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            source = _sources(x.shape[axis], before, after, mode)
            x = xp.take(x, xp.asarray(source), axis=axis)
    return x


def _sources(
    size: int, before: int, after: int, mode: str
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the index of the source element for each position of a padded axis."""
    places = np.arange(-before, size + after, dtype=np.int64)
    if size == 0:
        raise ValueError(f"mode {mode} has no elements to pad an empty axis with")
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode == "reflect":
        turn = max(size - 1, 1)
        return np.abs((places + turn) % (2 * turn) - turn) if size > 1 else places * 0
    raise ValueError(f"mode {mode!r} is not one of constant, reflect, edge and wrap")


# -- axes and blocks ------------------------------------------------------------------------------


@op
def Transpose(xp: Backend, data: Array, *, perm: Ints | None = None) -> Array:
    axes = tuple(range(data.ndim))
    if perm is None:
        perm = axes[::-1]
    if tuple(sorted(perm)) != axes:
        raise ValueError(f"perm {perm} is not a permutation of the axes of shape {data.shape}")
    return data if perm == axes else xp.permute_dims(data, perm)


@op
def DepthToSpace(xp: Backend, input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    n, c, h, w = _image(input, blocksize, mode)
    depth = c // blocksize**2
    if depth * blocksize**2 != c:
        raise ValueError(f"blocks of {blocksize} by {blocksize} do not divide {c} channels")
    if mode == "DCR":
        blocks, order = (blocksize, blocksize, depth), (0, 3, 4, 1, 5, 2)
    else:
        blocks, order = (depth, blocksize, blocksize), (0, 1, 4, 2, 5, 3)
    x = xp.permute_dims(xp.reshape(input, (n, *blocks, h, w)), order)
    return xp.reshape(x, (n, depth, h * blocksize, w * blocksize))


@op
def SpaceToDepth(xp: Backend, input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    n, c, h, w = _image(input, blocksize, mode)
    rows, columns = h // blocksize, w // blocksize
    if (rows * blocksize, columns * blocksize) != (h, w):
        raise ValueError(f"blocks of {blocksize} by {blocksize} do not divide {h} by {w} pixels")
    x = xp.reshape(input, (n, c, rows, blocksize, columns, blocksize))
    x = xp.permute_dims(x, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return xp.reshape(x, (n, c * blocksize**2, rows, columns))


def _image(x: Array, blocksize: int, mode: str) -> tuple[int, ...]:
    if x.ndim != 4 or blocksize < 1 or mode not in ("DCR", "CRD"):
        raise ValueError(
            f"shape {x.shape}, blocksize {blocksize}, mode {mode} make no image blocks"
        )
    return x.shape


@op
def Trilu(xp: Backend, input: Array, k: int = 0, *, upper: int = 1) -> Array:
    if input.ndim < 2:
        raise ValueError(f"shape {input.shape} holds no matrices")
    # Every k beyond the matrix means the same, and some libraries refuse larger ones.
    k = max(-input.shape[-2], min(k, input.shape[-1]))
    return xp.triu(input, k=k) if upper else xp.tril(input, k=k)
