"""Primitives that work on each element alone: padding stays where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.backends.jax.padding.axes import Layout, joined
from sardonyx.backends.jax.padding.proof import Act, Rule, Site

NAMES = (
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e "
    "bitcast_convert_type cbrt ceil clamp clz complex conj convert_element_type copy "
    "cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma "
    "igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt "
    "lt_to max min mul name ne neg nextafter not or polygamma population_count pow real "
    "reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub "
    "tan tanh threefry2x32 xor zeta "
)


def elementwise(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same(*site.params)
    layout = common_layout(site.layouts)
    made = [variable.aval.ndim for variable in site.padded.outvars]
    if any(ndim != len(layout) for ndim in made):
        # The bits of an element as several smaller ones, or the other way round.
        return [_with_last_axis(layout, site, i) for i in range(len(made))], site.again
    return [layout] * len(made), site.again


def common_layout(layouts: Sequence[Layout]) -> Layout:
    """Of operands of one shape, among which there may be scalars, and axes of one element."""
    rank = max(map(len, layouts))
    whole = [layout for layout in layouts if len(layout) == rank]
    return tuple(
        joined([axis for axis in axes if axis.padded != 1] or axes[:1])
        for axes in zip(*whole, strict=True)
    )


def _with_last_axis(layout: Layout, site: Site, index: int) -> Layout:
    rank = len(site.made(index)[1])
    if rank < len(layout):
        return layout[:rank]
    return (*layout, *(site.fresh(axis, index) for axis in range(len(layout), rank)))


def each_by_itself(site: Site) -> tuple[Sequence[Layout], Act]:
    """As many results as operands, each the image of one."""
    return site.layouts, site.again


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(NAMES.split(), elementwise),
    "optimization_barrier": each_by_itself,
}
