"""Operators that select elements by their values."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import OutputsRead, Unsized, op
from sardonyx.ops.dtypes import INT64, UINT8
from sardonyx.ops.precision import wide

# Of `Unique`: the values, where each occurs first, where each element went, and the counts.
ALL_OUTPUTS = OutputsRead(4)

# -- the largest or smallest elements -------------------------------------------------------------


@op
def TopK(
    xp: Backend, X: Array, K: int, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """Return the K extreme elements, always sorted; NaN counts as greater than any number."""
    axis = axis_within(axis, X.ndim)
    if not 0 <= K <= X.shape[axis]:
        raise ValueError(
            f"K is {K}, but must lie between 0 and {X.shape[axis]}, the size of axis {axis}"
        )
    places = xp.top_k(_comparable(xp, X), K, axis=axis, largest=bool(largest))
    return xp.take_along_axis(X, places, axis=axis), places


@TopK.before(10)
def top_k_of_an_attribute(xp: Backend, X: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Accept K as the attribute `k`."""
    values, places = TopK(xp, X, k, axis=axis)
    return values, places


def _comparable(xp: Backend, x: Array) -> Array:
    """Return `x` in a dtype that every library can sort; the order stays the same."""
    return xp.astype(x, xp.dtype(UINT8)) if xp.isdtype(x.dtype, "bool") else wide(xp, x)


# -- true or nonzero elements ---------------------------------------------------------------------


@op
def Compress(xp: Backend, input: Array, condition: Array, *, axis: int | None = None) -> Unsized:
    if condition.ndim != 1:
        raise ValueError(f"condition has shape {condition.shape}, but must have one axis")
    if axis is None:
        input, axis = xp.reshape(input, (-1,)), 0
    axis = axis_within(axis, input.ndim)
    (places,) = xp.nonzero(condition)
    is_longer = condition.size > input.shape[axis]
    if is_longer and bool(xp.any(places >= input.shape[axis])):
        raise ValueError(
            f"condition is true beyond the {input.shape[axis]} elements of axis {axis}"
        )
    return xp.take(input, places, axis=axis)


@op
def NonZero(xp: Backend, X: Array) -> Unsized:
    int64 = xp.dtype(INT64)
    places = xp.nonzero(X if X.ndim else xp.reshape(X, (1,)))
    if X.ndim:
        return xp.astype(xp.stack(places), int64)
    return xp.zeros((0, places[0].size), dtype=int64)


# -- distinct elements ----------------------------------------------------------------------------


@op
def Unique(
    xp: Backend,
    X: Array,
    *,
    axis: int | None = None,
    sorted: int = 1,
    outputs: OutputsRead = ALL_OUTPUTS,
) -> Unsized | tuple[Unsized, Unsized, Unsized, Unsized]:
    """Return the distinct slices, each as it first occurs; NaN equals NaN, and zeros are equal."""
    if axis is None:
        X, axis = xp.reshape(X, (-1,)), 0
    if outputs == 1 and sorted and X.ndim == 1 and axis_within(axis, 1) == 0:
        return xp.astype(xp.distinct_values(_comparable(xp, X)), X.dtype)
    return distinct_slices(xp, X, axis, is_sorted=bool(sorted))


def distinct_slices(
    xp: Backend, x: Array, axis: int, *, is_sorted: bool
) -> tuple[Array, Array, Array, Array]:
    """Return the distinct slices, where each occurs first, where each one went, and the counts."""
    axis = axis_within(axis, x.ndim)
    keys = _comparable(xp, x) if x.ndim == 1 else _ranks_of_slices(xp, x, axis)
    first, inverse, counts = xp.distinct(keys)
    if not is_sorted:
        by_place = xp.argsort(first)
        first, counts = (xp.take(each, by_place, axis=0) for each in (first, counts))
        inverse = xp.take(xp.argsort(by_place), inverse, axis=0)
    int64 = xp.dtype(INT64)
    first, inverse, counts = (xp.astype(each, int64) for each in (first, inverse, counts))
    return xp.take(x, first, axis=axis), first, inverse, counts


def _ranks_of_slices(xp: Backend, x: Array, axis: int) -> Array:
    """Return a number for each slice along an axis; numbers compare as the slices do.

    Neighbouring columns are merged in pairs, so that n columns take about log2(n) sorts.
    """
    rows = x.shape[axis]
    columns = x.size // rows if rows else 0
    x = xp.reshape(_comparable(xp, xp.moveaxis(x, axis, 0)), (rows, columns))
    ranks = xp.zeros((rows, 1), dtype=xp.dtype(INT64))
    if columns:
        ranks = _ranked(xp, x)
    while ranks.shape[1] > 1:
        left, right = ranks[:, ::2], xp.pad(ranks, [(0, 0), (0, ranks.shape[1] % 2)], 0)[:, 1::2]
        ranks = _ranked(xp, left * ranks.size + right)
    return ranks[:, 0]


def _ranked(xp: Backend, x: Array) -> Array:
    ranks = xp.ranks(*xp.runs(xp.reshape(x, (-1,))))
    return xp.reshape(ranks, x.shape)
