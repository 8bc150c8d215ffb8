"""Products and convolutions: both sides are masked with zeros along the summed axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.jax.padding.shaping import require_prefixes
from sardonyx.backends.padding.axes import Layout, Unpaddable, has_padding, joined


def dot_general(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*pair.params)
    (summed, batch), proof = pair.params["dimension_numbers"], pair.proof
    left, right = map(list, pair.layouts)
    for i, j in zip(*summed, strict=True):
        left[i] = right[j] = joined([left[i], right[j]])
    masks = [
        proof.mask(tuple(side), axes) for side, axes in zip((left, right), summed, strict=True)
    ]
    shared = [joined([left[i], right[j]]) for i, j in zip(*batch, strict=True)]
    free = [
        axis
        for layout, own_summed, own_batch in zip(pair.layouts, summed, batch, strict=True)
        for i, axis in enumerate(layout)
        if i not in own_summed and i not in own_batch
    ]

    def run(runtime_args: RuntimeArgs, *sides: Any) -> Sequence[Any]:
        filled = (mask.fill(runtime_args, x, 0) for mask, x in zip(masks, sides, strict=True))
        return pair.unchanged(runtime_args, *filled)

    return [(*shared, *free)], run


def convolution(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """The batch may be padded; along the windows zeros replace the padding."""
    params = pair.params
    pair.require_same(*(name for name in params if name != "padding"))
    numbers, (x, weight) = params["dimension_numbers"], pair.layouts
    batch, channels, *spatial = numbers.lhs_spec
    into, _, *_ = numbers.out_spec
    if has_padding(weight) or x[channels].is_padded:
        raise Unpaddable("it is a convolution whose channels or kernel are padded")
    if params["batch_group_count"] != 1 and x[batch].is_padded:
        raise Unpaddable("it convolves groups of a padded batch")
    result = [pair.result_axis(axis) for axis in range(len(x))]
    result[into] = x[batch]
    beyond = [pair.pads_behind("padding", i) for i in range(len(spatial))]
    masked = [a for a, reads in zip(spatial, beyond, strict=True) if reads and x[a].is_padded]
    require_prefixes(x, spatial, "its windows run along an axis")
    mask = pair.proof.mask(x, masked)
    return [tuple(result)], pair.masked(mask, lambda dtype: 0)


RULES: Mapping[str, Rule] = {"dot_general": dot_general, "conv_general_dilated": convolution}
