"""Primitives that give elements other places: padding moves with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Act, Rule, Site
from sardonyx.backends.padding.axes import (
    Axis,
    Different,
    Layout,
    Unpaddable,
    clean,
    has_padding,
    joined,
    reshaped,
)


def broadcast_in_dim(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("broadcast_dimensions")
    source = dict(zip(site.params["broadcast_dimensions"], site.layouts[0], strict=True))
    true, padded = site.made()
    layout = []
    for axis, size in enumerate(padded):
        given = source.get(axis, clean(1))
        if (given.true, given.padded) == (true[axis], size):
            layout.append(given)
        elif given.padded == 1:
            layout.append(site.fresh(axis, even=True))
        else:
            raise Different("it stretches an axis for some sizes alone")
    return [tuple(layout)], site.again


def iota(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("dimension", "dtype")
    along = site.params["dimension"]
    ndim = len(site.made()[1])
    return [tuple(site.fresh(axis, even=axis != along) for axis in range(ndim))], site.again


def reshape(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("dimensions")
    if site.params["dimensions"] is not None:
        raise Unpaddable("it reorders axes and reshapes in one")
    (layout,), (_, shape) = site.layouts, site.made()
    if 0 in shape or all(axis.even or axis.padded == 1 for axis in layout):
        return [tuple(site.fresh(axis, even=True) for axis in range(len(shape)))], site.again
    return [reshaped(layout, shape)], site.again


def squeeze(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("dimensions")
    gone = site.params["dimensions"]
    return [tuple(a for i, a in enumerate(site.layouts[0]) if i not in gone)], site.again


def transpose(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("permutation")
    return [tuple(site.layouts[0][axis] for axis in site.params["permutation"])], site.again


def tile(site: Site) -> tuple[Sequence[Layout], Act]:
    """Each copy is written over the padding of the one before it."""
    (layout,) = site.layouts
    axes, copied = [], {}
    for axis, before in enumerate(layout):
        times = site.params["reps"][axis]
        if site.proof.varies(site.true.params["reps"][axis], times):
            if before.is_padded:
                raise Unpaddable("it repeats a padded axis by a number that depends on its size")
        elif before.is_padded and times != 1:
            require_prefixes(layout, [axis], "it repeats an axis")
            copied[axis] = site.proof.size(before.true)
        axes.append(before if times == 1 and before.is_padded else site.fresh(axis))

    def act(told: Told, x: Any) -> list[Any]:
        (result,) = site.again(told, x)
        for axis, size in copied.items():
            result = _copied(result, axis, x.shape[axis], told[size])
        return [result]

    return [tuple(axes)], act


def _copied(x: Any, axis: int, stride: int, size: Any) -> Any:
    """What lies `stride` apart, moved to where it lies `size` apart."""
    for i in range(1, x.shape[axis] // stride):
        piece = lax.slice_in_dim(x, i * stride, (i + 1) * stride, axis=axis)
        x = lax.dynamic_update_slice_in_dim(x, piece, i * size, axis)
    return x


def stack(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("axis")
    layout = [joined(axes) for axes in zip(*site.layouts, strict=True)]
    layout.insert(site.params["axis"], clean(len(site.layouts)))
    return [tuple(layout)], site.again


def unstack(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("axis")
    along = site.params["axis"]
    layout = tuple(axis for i, axis in enumerate(site.layouts[0]) if i != along)
    return [layout] * len(site.padded.outvars), site.again


def reverse(site: Site) -> tuple[Sequence[Layout], Act]:
    """The padding comes to lie in front, and the elements are moved over it."""
    site.require_same("dimensions")
    (layout,) = site.layouts
    moved = [axis for axis in site.params["dimensions"] if layout[axis].is_padded]
    require_prefixes(layout, moved, "it reverses an axis")
    sizes = {axis: site.proof.size(layout[axis].true) for axis in moved}

    def act(told: Told, x: Any) -> list[Any]:
        (result,) = site.again(told, x)
        for axis, size in sizes.items():
            result = shifted(result, axis, x.shape[axis] - told[size], x.shape[axis])
        return [result]

    return [layout], act


def concatenate(site: Site) -> tuple[Sequence[Layout], Act]:
    """Each operand is written over the padding of the one before it."""
    site.require_same("dimension")
    along = site.params["dimension"]
    others = [[a for i, a in enumerate(layout) if i != along] for layout in site.layouts]
    layout = [joined(axes) for axes in zip(*others, strict=True)]
    operands = [given[along] for given in site.layouts]
    padded = [i for i, axis in enumerate(operands) if axis.is_padded]
    for given in site.layouts:
        require_prefixes(given, [along], "it concatenates along an axis")
    layout.insert(along, _sum_of(operands))
    if not padded or padded == [len(operands) - 1]:
        return [tuple(layout)], site.again
    ends = accumulate(axis.true for axis in operands[:-1])
    starts = [site.proof.size(end) for end in ends]

    def act(told: Told, *arrays: Any) -> list[Any]:
        (result,) = site.again(told, *arrays)
        for start, array in zip(starts, arrays[1:], strict=True):
            result = lax.dynamic_update_slice_in_dim(result, array, told[start], along)
        return [result]

    return [tuple(layout)], act


def _sum_of(axes: Sequence[Axis]) -> Axis:
    return Axis.of(
        sum(axis.padded for axis in axes),
        sum(axis.true for axis in axes),
        is_padded=any(axis.is_padded for axis in axes),
    )


def pad(site: Site) -> tuple[Sequence[Layout], Act]:
    """The value that it pads with follows what is true, in the place of our padding."""
    (layout, value), proof = site.layouts, site.proof
    if value:
        raise Unpaddable("it pads with more than one value")
    axes, masked = [], []
    pairs = zip(site.true.params["padding_config"], site.params["padding_config"], strict=True)
    for i, (true, own) in enumerate(pairs):
        grows = proof.varies(true[1], own[1])
        if true[0] != own[0] or true[2] != own[2]:
            raise Unpaddable("it pads the front of an axis, or between its elements, by its size")
        if own == (0, 0, 0) and not grows:
            axes.append(layout[i])
            continue
        if layout[i].is_padded and (grows or own[1] > 0):
            masked.append(i)
        axes.append(site.fresh(i))
    changed = [i for i, axis in enumerate(axes) if axis is not layout[i]]
    require_prefixes(layout, changed, "it pads an axis")
    mask = proof.mask(layout, masked)

    def act(told: Told, x: Any, value: Any) -> Sequence[Any]:
        return site.again(told, mask.fill(told, x, value), value)

    return [tuple(axes)], act


def require_prefixes(layout: Layout, axes: Sequence[int], what: str) -> None:
    if any(not layout[axis].is_prefix for axis in axes):
        raise Unpaddable(f"{what} that was made of two, of which one is padded")


def shifted(x: Any, axis: int, start: Any, size: int) -> Any:
    """`size` elements of an axis from `start` on, with zeros beyond its end."""
    room = [(0, size if i == axis else 0) for i in range(x.ndim)]
    return lax.dynamic_slice_in_dim(jnp.pad(x, room), start, size, axis)


def fixed(site: Site) -> tuple[Sequence[Layout], Act]:
    """Of what the last axes hold, nothing may be padded; the others are a batch."""
    site.require_same(*site.params)
    inner = _INNER_AXES[site.name](site)
    if any(has_padding(layout[len(layout) - inner :]) for layout in site.layouts):
        raise Unpaddable("it works on whole rows or matrices, of which a side is padded")
    batch = [layout[: len(layout) - inner] for layout in site.layouts]
    common = tuple(joined(axes) for axes in zip(*batch, strict=True))
    made = []
    for index in range(len(site.padded.outvars)):
        ndim = len(site.made(index)[1])
        rest = (site.fresh(axis, index) for axis in range(len(common), ndim))
        made.append((*common, *rest))
    return made, site.again


_INNER_AXES: Mapping[str, Any] = {
    "fft": lambda site: len(site.params["fft_lengths"]),
    **dict.fromkeys(("lu", "triangular_solve", "cholesky", "qr", "svd", "eigh"), lambda site: 2),
}

RULES: Mapping[str, Rule] = {
    "broadcast_in_dim": broadcast_in_dim,
    "iota": iota,
    "reshape": reshape,
    "squeeze": squeeze,
    "transpose": transpose,
    "tile": tile,
    "stack": stack,
    "unstack": unstack,
    "rev": reverse,
    "concatenate": concatenate,
    "pad": pad,
    **dict.fromkeys(_INNER_AXES, fixed),
}
