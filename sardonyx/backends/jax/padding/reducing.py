"""Reductions, running totals, sorts: a neutral value replaces padding that would count."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.jax.padding.elementwise import common_layout
from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.jax.padding.shaping import require_prefixes, without
from sardonyx.backends.padding.axes import Layout

Neutral = Callable[[Any], Any]


zero = partial(np.zeros, ())
one = partial(np.ones, ())


def lowest(dtype: Any) -> Any:
    return _extreme(dtype, -math.inf)


def highest(dtype: Any) -> Any:
    return _extreme(dtype, math.inf)


def _extreme(dtype: Any, infinity: float) -> Any:
    """Infinity if the type has one, else its lowest or highest value."""
    if dtype == np.bool_:
        return infinity > 0
    is_inexact = jnp.issubdtype(dtype, jnp.inexact)
    if is_inexact and not np.isnan(np.asarray(infinity).astype(dtype)):
        return infinity
    limits = jnp.finfo(dtype) if is_inexact else jnp.iinfo(dtype)
    return limits.max if infinity > 0 else limits.min


def _all_ones(dtype: Any) -> Any:
    return ~np.zeros((), dtype)


def reduction(neutral: Neutral, pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*pair.params)
    (layout,), axes = pair.layouts, pair.params["axes"]
    mask = pair.proof.mask(layout, axes)
    return [without(layout, axes)], pair.masked(mask, neutral)


def arg_extreme(neutral: Neutral, pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """The first of equal values wins, so that masked padding never precedes true elements."""
    require_prefixes(pair.layouts[0], pair.params["axes"], "it searches along an axis")
    return reduction(neutral, pair)


def cumulative(neutral: Neutral, pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*pair.params)
    (layout,), axis = pair.layouts, pair.params["axis"]
    require_prefixes(layout, [axis], "it accumulates along an axis")
    mask = pair.proof.mask(layout, [axis] if pair.params["reverse"] else [])
    result = tuple(a if i != axis else a.nonuniform for i, a in enumerate(layout))
    return [result], pair.masked(mask, neutral)


def window(neutral: Neutral, pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    (layout,), params = pair.layouts, pair.params
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    pair.require_same(*names)
    axes, masked = [], []
    for i, axis in enumerate(layout):
        pads_behind, numbers = pair.pads_behind("padding", i), {params[name][i] for name in names}
        if params["padding"][i] == (0, 0) and not pads_behind and numbers == {1}:
            axes.append(axis)
            continue
        require_prefixes(layout, [i], "its windows run along an axis")
        if axis.is_padded and pads_behind:
            masked.append(i)
        axes.append(pair.result_axis(i))
    mask = pair.proof.mask(layout, masked)
    return [tuple(axes)], pair.masked(mask, neutral)


def sort(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """An additional first key sorts the padding to the end."""
    pair.require_same(*pair.params)
    along, keys = pair.params["dimension"], pair.params["num_keys"]
    layout = common_layout(pair.layouts)
    require_prefixes(layout, [along], "it sorts along an axis")
    mask = pair.proof.mask(layout, [along])
    result = tuple(a if i != along else a.nonuniform for i, a in enumerate(layout))
    results = [result] * len(pair.padded.outvars)
    if not mask:
        return results, pair.unchanged

    def run(runtime_args: RuntimeArgs, *arrays: Any) -> Sequence[Any]:
        options = {"dimension": along, "is_stable": pair.params["is_stable"], "num_keys": keys + 1}
        return lax.sort((mask.padding(runtime_args, arrays[0].shape), *arrays), **options)[1:]

    return results, run


def top_k(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """Uses a sort, because no number is below all others and could replace the padding."""
    (layout,), axis = pair.layouts, pair.same("axis")
    require_prefixes(layout, [axis], "it takes the largest elements along an axis")
    result = tuple(pair.result_axis(i) if i == axis else a for i, a in enumerate(layout))
    mask = pair.proof.mask(layout, [axis])
    if not mask:
        return [result, result], pair.unchanged

    def run(runtime_args: RuntimeArgs, x: Any) -> Sequence[Any]:
        positions = lax.broadcasted_iota(np.int32, x.shape, axis)
        arrays = (mask.padding(runtime_args, x.shape), _descending(x), x, positions)
        ordered = lax.sort(arrays, dimension=axis, is_stable=True, num_keys=2)
        return [lax.slice_in_dim(part, 0, pair.params["k"], axis=axis) for part in ordered[2:]]

    return [result, result], run


def _descending(x: Any) -> Any:
    """Integers whose order is the reverse of the numbers' total order."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return ~x
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax.bitcast_convert_type(x, whole)
    return ~jnp.where(bits < 0, bits ^ jnp.iinfo(whole).max, bits)


RULES: Mapping[str, Rule] = {
    "reduce_sum": partial(reduction, zero),
    "reduce_prod": partial(reduction, one),
    "reduce_max": partial(reduction, lowest),
    "reduce_min": partial(reduction, highest),
    "reduce_and": partial(reduction, _all_ones),
    "reduce_or": partial(reduction, zero),
    "reduce_xor": partial(reduction, zero),
    "argmax": partial(arg_extreme, lowest),
    "argmin": partial(arg_extreme, highest),
    "cumsum": partial(cumulative, zero),
    "cumprod": partial(cumulative, one),
    "cummax": partial(cumulative, lowest),
    "cummin": partial(cumulative, highest),
    "cumlogsumexp": partial(cumulative, lowest),
    "reduce_window_sum": partial(window, zero),
    "reduce_window_max": partial(window, lowest),
    "reduce_window_min": partial(window, highest),
    "sort": sort,
    "top_k": top_k,
}
