"""Which equations compute each row of a padded axis from the same row of their operands alone.

If all equations of a program do, in the same way for each row, then a few rows can be computed at a
time. A primitive that is not known here counts as one that mixes rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.jax.lockstep import carried_by_scan
from sardonyx.backends.jax.padding.elementwise import NAMES
from sardonyx.backends.jax.padding.known import Known, tells_rows
from sardonyx.backends.jax.padding.proof import EquationPair
from sardonyx.backends.padding.axes import Layout, has_padding

Check: TypeAlias = Callable[[EquationPair, Sequence[Layout]], bool]


def keeps_rows(
    pair: EquationPair, results: Sequence[Layout], known: Sequence[Known | None]
) -> bool:
    """Whether an equation with results like these keeps all rows apart."""
    layouts = (*pair.layouts, *results)
    if not all(map(counts_rows_once, layouts)):
        return False
    telling = [i for i, layout in enumerate(pair.layouts) if tells_rows(layout, known[i])]
    if telling:
        indices = known[1] if pair.name == "gather" and telling == [1] else None
        return indices is not None and _gathers_own_rows(pair, indices)
    if not any(map(has_padding, layouts)):
        return True
    check = _CHECKS.get(pair.name)
    return check is not None and check(pair, results)


def _gathers_own_rows(pair: EquationPair, indices: Known) -> bool:
    """Whether each row reads the row with the same number, and all rows the same places."""
    numbers, (x, rows) = pair.params["dimension_numbers"], pair.layouts
    along = [i for i, axis in enumerate(rows) if axis.is_padded]
    read = [i for i, axis in enumerate(x) if axis.is_padded]
    if len(read) != 1 or len(along) != 1 or read[0] not in numbers.start_index_map:
        return False
    (axis,), (row,) = read, along
    lengths = {each[axis] for each in pair.both("slice_sizes")}
    if x[axis].parts != rows[row].parts or lengths != {1} or row == len(rows) - 1:
        return False
    component = numbers.start_index_map.index(axis)
    return all(_are_own_rows(np.moveaxis(each, row, 0), component) for each in indices.arrays())


def _are_own_rows(indices: np.ndarray[Any, Any], component: int) -> bool:
    own = np.arange(len(indices)).reshape(-1, *(1,) * (indices.ndim - 2))
    others = np.delete(indices, component, axis=-1)
    is_own = np.array_equal(indices[..., component], np.broadcast_to(own, indices.shape[:-1]))
    return is_own and bool((others == others[:1]).all())


def counts_rows_once(layout: Layout) -> bool:
    """Whether at most one digit of an array's positions is the number of a row.

    >>> from sardonyx.backends.padding.axes import Axis, unpadded
    >>> batch = Axis.of(8, 3, is_padded=True)
    >>> counts_rows_once((batch, unpadded(4))), counts_rows_once((batch, batch))
    (True, False)
    """
    return sum(part.is_padded for axis in layout for part in axis.parts) <= 1


def _always(pair: EquationPair, results: Sequence[Layout]) -> bool:
    """Elements stay in their rows, or a body does the work, whose equations are asked too."""
    return True


def _reduction(pair: EquationPair, results: Sequence[Layout]) -> bool:
    return not any(pair.layouts[0][axis].is_padded for axis in pair.params["axes"])


def _along(name: str) -> Check:
    """The axis that a parameter names must have no rows: its elements are combined, or numbered."""

    def check(pair: EquationPair, results: Sequence[Layout]) -> bool:
        axes = np.atleast_1d(pair.params[name]).tolist()
        return not any(each[axis].is_padded for each in (*pair.layouts, *results) for axis in axes)

    return check


def _whole_axis(pair: EquationPair, results: Sequence[Layout]) -> bool:
    """A slice that has all elements of an axis leaves them where they are."""
    (layout, *_) = pair.layouts
    return all(_are_same_rows(layout, result) for result in results)


def _update(pair: EquationPair, results: Sequence[Layout]) -> bool:
    x, update, *_ = pair.layouts
    return _are_same_rows(x, update) and _are_same_rows(x, results[0])


def _are_same_rows(one: Layout, other: Layout) -> bool:
    return all(
        (a.true, a.padded) == (b.true, b.padded)
        for a, b in zip(one, other, strict=True)
        if a.is_padded or b.is_padded
    )


def _neutral(*names: str) -> Check:
    """These parameters say nothing where there are rows: no widths, and windows of one element."""

    def check(pair: EquationPair, results: Sequence[Layout]) -> bool:
        with_rows = [
            i
            for i, axes in enumerate(zip(pair.layouts[0], results[0], strict=True))
            if any(axis.is_padded for axis in axes)
        ]
        return all(
            _is_neutral(each[i]) for name in names for each in pair.both(name) for i in with_rows
        )

    return check


def _is_neutral(number: Any) -> bool:
    return not np.any(number) if np.ndim(number) else number == 1


def _product(pair: EquationPair, results: Sequence[Layout]) -> bool:
    summed, _ = pair.params["dimension_numbers"]
    sides = zip(pair.layouts, summed, strict=True)
    return not any(layout[axis].is_padded for layout, axes in sides for axis in axes)


def _convolution(pair: EquationPair, results: Sequence[Layout]) -> bool:
    numbers = pair.params["dimension_numbers"]
    places = (pair.layouts[0], numbers.lhs_spec), (results[0], numbers.out_spec)
    return not any(layout[axis].is_padded for layout, (_, *rest) in places for axis in rest)


def _gather(pair: EquationPair, results: Sequence[Layout]) -> bool:
    """Rows are selected by none of the indices, unless these have rows themselves."""
    paired = pair.params["dimension_numbers"].operand_batching_dims
    windows = zip(*pair.both("slice_sizes"), strict=True)
    return all(
        sizes == (axis.true, axis.padded)
        for i, (axis, sizes) in enumerate(zip(pair.layouts[0], windows, strict=True))
        if axis.is_padded and i not in paired
    )


def _scan(pair: EquationPair, results: Sequence[Layout]) -> bool:
    carry = carried_by_scan((pair.true, pair.padded))
    length, padded_length = pair.both("length")
    stacked = (*pair.layouts[carry.stop :], *results[carry.stop - carry.start :])
    return length == padded_length and not any(layout[0].is_padded for layout in stacked)


_ALWAYS = (
    "broadcast_in_dim reshape squeeze transpose stack optimization_barrier cond while fft lu "
    "triangular_solve cholesky qr svd eigh"
)
_REDUCTIONS = "sum prod max min and or xor"

# By the name of JAX's primitive.
_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys((NAMES + _ALWAYS).split(), _always),
    **{f"reduce_{name}": _reduction for name in _REDUCTIONS.split()},
    **dict.fromkeys(("argmax", "argmin"), _reduction),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "top_k"), _along("axis")
    ),
    **dict.fromkeys(("sort", "concatenate", "iota"), _along("dimension")),
    "rev": _along("dimensions"),
    **dict.fromkeys(("slice", "split", "dynamic_slice"), _whole_axis),
    "dynamic_update_slice": _update,
    "pad": _neutral("padding_config"),
    "tile": _neutral("reps"),
    **{
        f"reduce_window_{name}": _neutral(
            "padding", "window_dimensions", "window_strides", "base_dilation", "window_dilation"
        )
        for name in ("sum", "max", "min")
    },
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _gather,
    "scan": _scan,
}
