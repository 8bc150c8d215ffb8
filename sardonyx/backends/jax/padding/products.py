"""Products and convolutions: along what is summed, both sides are zero where they are not true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Act, Rule, Site
from sardonyx.backends.jax.padding.shaping import require_prefixes
from sardonyx.backends.padding.axes import Layout, Unpaddable, has_padding, joined


def dot_general(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same(*site.params)
    (summed, batch), proof = site.params["dimension_numbers"], site.proof
    left, right = map(list, site.layouts)
    for i, j in zip(*summed, strict=True):
        left[i] = right[j] = joined([left[i], right[j]])
    masks = [
        proof.mask(tuple(side), axes) for side, axes in zip((left, right), summed, strict=True)
    ]
    shared = [joined([left[i], right[j]]) for i, j in zip(*batch, strict=True)]
    free = [
        axis
        for layout, gone, kept in zip(site.layouts, summed, batch, strict=True)
        for i, axis in enumerate(layout)
        if i not in gone and i not in kept
    ]

    def act(told: Told, *sides: Any) -> Sequence[Any]:
        pairs = zip(masks, sides, strict=True)
        return site.again(told, *(mask.fill(told, side, 0) for mask, side in pairs))

    return [(*shared, *free)], act


def convolution(site: Site) -> tuple[Sequence[Layout], Act]:
    """The batch passes; along the windows zeros go on where what is true ends."""
    params = site.params
    site.require_same(*(name for name in params if name != "padding"))
    numbers, (x, weight) = params["dimension_numbers"], site.layouts
    batch, channels, *spatial = numbers.lhs_spec
    into, _, *_ = numbers.out_spec
    if has_padding(weight) or x[channels].is_padded:
        raise Unpaddable("a convolution's channels or its kernel are padded")
    if params["batch_group_count"] != 1 and x[batch].is_padded:
        raise Unpaddable("it convolves groups of a batch that is padded")
    made = [site.fresh(axis) for axis in range(len(x))]
    made[into] = x[batch]
    masked = [axis for i, axis in enumerate(spatial) if _reads_beyond(site, i, x[axis].is_padded)]
    require_prefixes(x, spatial, "its windows lie along an axis")
    mask = site.proof.mask(x, masked)

    def act(told: Told, x: Any, weight: Any) -> Sequence[Any]:
        return site.again(told, mask.fill(told, x, 0), weight)

    return [tuple(made)], act


def _reads_beyond(site: Site, index: int, is_padded: bool) -> bool:
    """Whether windows reach over the end of what is true; they must begin where they did."""
    true, own = site.true.params["padding"][index], site.params["padding"][index]
    grows = site.proof.varies(true[1], own[1])
    if true[0] != own[0]:
        raise Unpaddable("it pads the front of an axis by its size")
    return is_padded and (grows or own[1] > 0)


RULES: Mapping[str, Rule] = {
    "dot_general": dot_general,
    "conv_general_dilated": convolution,
}
