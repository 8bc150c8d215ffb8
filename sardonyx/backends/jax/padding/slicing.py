"""Slices: a start that depends on the size is a runtime argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.jax.padding.shaping import require_prefixes, shifted
from sardonyx.backends.padding.axes import Axis, Layout, Slot, Unpaddable, joined, unpadded


class Cut(NamedTuple):
    """A slice along one axis, in one trace."""

    start: int
    stop: int
    step: int


CutsOf: TypeAlias = Callable[[Any, int], Sequence[Cut]]


def static_slice(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    return _slices(pair, _cuts)


def split(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same("axis")
    return _slices(pair, _piece)


def _slices(pair: EquationPair, cuts_of: CutsOf) -> tuple[Sequence[Layout], Run]:
    pieces = [_slice(pair, cuts_of, index) for index in range(len(pair.padded.outvars))]

    def run(runtime_args: RuntimeArgs, x: Any) -> list[Any]:
        return [_take(runtime_args, x, cuts, starts) for _, cuts, starts in pieces]

    return [layout for layout, _, _ in pieces], run


def _piece(equation: Any, index: int) -> list[Cut]:
    """The cuts of one result of a `split`."""
    ends = [0, *accumulate(int(size) for size in equation.params["sizes"])]
    cuts = [Cut(0, size, 1) for size in equation.invars[0].aval.shape]
    cuts[equation.params["axis"]] = Cut(ends[index], ends[index + 1], 1)
    return cuts


def _cuts(equation: Any, index: int) -> list[Cut]:
    """The cuts of a `slice`, which has one result."""
    params = equation.params
    steps = params["strides"] or (1,) * len(params["start_indices"])
    return list(map(Cut, params["start_indices"], params["limit_indices"], steps))


def _slice(
    pair: EquationPair, cuts_of: CutsOf, index: int
) -> tuple[Layout, Sequence[Cut], dict[int, Slot]]:
    """The layout of a slice, its cuts, and its starts that are runtime arguments, by axis."""
    (layout,), shapes = pair.layouts, pair.operand_shapes()
    true, own = cuts_of(pair.true, index), cuts_of(pair.padded, index)
    axes, starts = [], {}
    for i, (before, cut) in enumerate(zip(true, own, strict=True)):
        if before == (0, shapes[0][i], 1) and cut == (0, shapes[1][i], 1):
            axes.append(layout[i])
            continue
        if before.step != cut.step:
            raise Unpaddable("the step of its slice depends on the size")
        require_prefixes(layout, [i], "it slices an axis")
        if pair.proof.varies(before.start, cut.start):
            starts[i] = pair.proof.size_slot(before.start)
        axes.append(pair.result_axis(i, index, uniform=layout[i].uniform))
    return tuple(axes), own, starts


def _take(
    runtime_args: RuntimeArgs, x: Any, cuts: Sequence[Cut], starts: Mapping[int, Slot]
) -> Any:
    cuts = list(cuts)
    for axis, start in starts.items():
        first, stop, step = cuts[axis]
        cuts[axis] = Cut(0, max(stop - first, 0), step)
        x = shifted(x, axis, runtime_args[start], cuts[axis].stop)
    return lax.slice(x, *([cut[i] for cut in cuts] for i in range(3)))


def dynamic_slice(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """A start is clipped so that the slice stays within the true elements."""
    layout, bounds, axes = pair.layouts[0], {}, []
    shapes, sizes = pair.operand_shapes(), pair.result_shapes()
    for i, axis in enumerate(layout):
        if all(size[i] == shape[i] for size, shape in zip(sizes, shapes, strict=True)):
            axes.append(axis)
            continue
        if pair.proof.varies(sizes[0][i], sizes[1][i]):
            raise Unpaddable("it takes a slice of a padded size from a computed start")
        require_prefixes(layout, [i], "it takes a slice")
        if axis.is_padded:
            bounds[i] = pair.proof.size_slot(axis.true - sizes[0][i])
        axes.append(unpadded(sizes[1][i]))

    def run(runtime_args: RuntimeArgs, x: Any, *starts: Any) -> Sequence[Any]:
        return pair.unchanged(runtime_args, x, *_within(runtime_args, starts, bounds))

    return [tuple(axes)], run


def dynamic_update_slice(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """Writes only the true elements of a padded update."""
    layout, update = pair.layouts[0], pair.layouts[1]
    bounds: dict[int, Slot] = {}
    axes: list[Axis] = []
    written = []
    (true, own), (update_true, update_own) = pair.operand_shapes(0), pair.operand_shapes(1)
    for i, (axis, part) in enumerate(zip(layout, update, strict=True)):
        if true[i] == update_true[i] and own[i] == update_own[i]:
            axes.append(joined([axis, part]))
            continue
        require_prefixes(layout, [i], "it writes into an axis")
        require_prefixes(update, [i], "it writes an axis")
        if axis.is_padded or part.is_padded:
            bounds[i] = pair.proof.size_slot(true[i] - update_true[i])
        if part.is_padded:
            written.append(i)
        axes.append(axis.nonuniform)
    mask = pair.proof.mask(update, written)

    def run(runtime_args: RuntimeArgs, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
        within = _within(runtime_args, starts, bounds)
        if not mask:
            return pair.unchanged(runtime_args, x, update, *within)
        room = [(0, update.shape[i] if i in written else 0) for i in range(x.ndim)]
        wide = jnp.pad(x, room)
        before = lax.dynamic_slice(wide, within, update.shape)
        update = jnp.where(mask.where(runtime_args, update.shape), update, before)
        wide = lax.dynamic_update_slice(wide, update, within)
        return [lax.slice(wide, (0,) * x.ndim, x.shape)]

    return [tuple(axes)], run


def _within(
    runtime_args: RuntimeArgs, starts: Sequence[Any], bounds: Mapping[int, Slot]
) -> list[Any]:
    return [
        jnp.clip(start, 0, runtime_args[bounds[i]].astype(start.dtype)) if i in bounds else start
        for i, start in enumerate(starts)
    ]


RULES: Mapping[str, Rule] = {
    "slice": static_slice,
    "split": split,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
}
