"""Element-wise primitives: padding stays where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.padding.axes import Layout, joined

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


def elementwise(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*pair.params)
    layout = common_layout(pair.layouts)
    ranks = [variable.aval.ndim for variable in pair.padded.outvars]
    if any(rank != len(layout) for rank in ranks):
        # A bitcast to a narrower or a wider type adds or removes the last axis.
        return [_with_last_axis(layout, pair, i) for i in range(len(ranks))], pair.unchanged
    return [layout] * len(ranks), pair.unchanged


def common_layout(layouts: Sequence[Layout]) -> Layout:
    """The layout of the result for operands that broadcast: scalars and axes of size 1 adapt."""
    rank = max(map(len, layouts))
    whole = [layout for layout in layouts if len(layout) == rank]
    return tuple(
        joined([axis for axis in axes if axis.padded != 1] or axes[:1])
        for axes in zip(*whole, strict=True)
    )


def _with_last_axis(layout: Layout, pair: EquationPair, index: int) -> Layout:
    rank = len(pair.result_shapes(index)[1])
    if rank < len(layout):
        return layout[:rank]
    return (*layout, *(pair.result_axis(axis, index) for axis in range(len(layout), rank)))


def one_to_one(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """One result per operand, with the same layout."""
    return pair.layouts, pair.unchanged


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(NAMES.split(), elementwise),
    "optimization_barrier": one_to_one,
}
