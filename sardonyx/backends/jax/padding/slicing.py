"""Slices: where one begins at a place that depends on the size, the call tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Act, Rule, Site
from sardonyx.backends.jax.padding.shaping import require_prefixes, shifted
from sardonyx.backends.padding.axes import Axis, Layout, Place, Unpaddable, clean, joined


class Cut(NamedTuple):
    """What is taken along one axis: from where, up to where, in which steps, in one trace."""

    start: int
    stop: int
    step: int

    def is_all(self, size: int) -> bool:
        return self == (0, size, 1)


def static_slice(site: Site) -> tuple[Sequence[Layout], Act]:
    true, own = (_cuts(equation) for equation in (site.true, site.padded))
    layout, moves = _taken(site, true, own, 0)
    return [layout], lambda told, x: [_take(told, x, own, moves)]


def split(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same("axis")
    along = site.params["axis"]
    pieces = []
    for index in range(len(site.padded.outvars)):
        true, own = (_piece(one, along, index) for one in (site.true, site.padded))
        made, moves = _taken(site, true, own, index)
        pieces.append((made, own, moves))

    def act(told: Told, x: Any) -> list[Any]:
        return [_take(told, x, cuts, moves) for _, cuts, moves in pieces]

    return [made for made, _, _ in pieces], act


def _piece(equation: Any, along: int, index: int) -> list[Cut]:
    ends = [0, *accumulate(int(size) for size in equation.params["sizes"])]
    cuts = [Cut(0, size, 1) for size in equation.invars[0].aval.shape]
    cuts[along] = Cut(ends[index], ends[index + 1], 1)
    return cuts


def _cuts(equation: Any) -> list[Cut]:
    params = equation.params
    steps = params["strides"] or (1,) * len(params["start_indices"])
    return list(map(Cut, params["start_indices"], params["limit_indices"], steps))


def _taken(
    site: Site, true: Sequence[Cut], own: Sequence[Cut], index: int
) -> tuple[Layout, dict[int, Place]]:
    """The layout of a slice, and the axes along which it begins elsewhere at each call."""
    (layout,), shapes = site.layouts, site.shapes()
    axes, moves = [], {}
    for i, (before, cut) in enumerate(zip(true, own, strict=True)):
        if before.is_all(shapes[0][i]) and cut.is_all(shapes[1][i]):
            axes.append(layout[i])
            continue
        if before.step != cut.step:
            raise Unpaddable("its steps depend on the size")
        require_prefixes(layout, [i], "it slices an axis")
        if site.proof.varies(before.start, cut.start):
            moves[i] = site.proof.size(before.start)
        axes.append(site.fresh(i, index, even=layout[i].even))
    return tuple(axes), moves


def _take(told: Told, x: Any, cuts: Sequence[Cut], moves: Mapping[int, Place]) -> Any:
    for axis, start in moves.items():
        first, stop, step = cuts[axis]
        x = shifted(x, axis, told[start], max(stop - first, 0))[
            tuple(slice(None, None, step if i == axis else 1) for i in range(x.ndim))
        ]
    rest = [Cut(0, x.shape[axis], 1) if axis in moves else cut for axis, cut in enumerate(cuts)]
    return lax.slice(x, *([part[i] for part in rest] for i in range(3)))


def dynamic_slice(site: Site) -> tuple[Sequence[Layout], Act]:
    """A start is moved so that the slice ends with what is true."""
    layout, bounds, axes = site.layouts[0], {}, []
    shapes, made = site.shapes(), site.made()
    for i, axis in enumerate(layout):
        if all(size[i] == shape[i] for size, shape in zip(made, shapes, strict=True)):
            axes.append(axis)
            continue
        if site.proof.varies(made[0][i], made[1][i]):
            raise Unpaddable("it takes a slice of a padded size from a place that is computed")
        require_prefixes(layout, [i], "it takes a slice")
        if axis.is_padded:
            bounds[i] = site.proof.size(axis.true - made[0][i])
        axes.append(clean(made[1][i]))

    def act(told: Told, x: Any, *starts: Any) -> Sequence[Any]:
        return site.again(told, x, *_within(told, starts, bounds))

    return [tuple(axes)], act


def dynamic_update_slice(site: Site) -> tuple[Sequence[Layout], Act]:
    """Of a padded update only what is true is written."""
    layout, update = site.layouts[0], site.layouts[1]
    bounds: dict[int, Place] = {}
    axes: list[Axis] = []
    written = []
    (true, own), (update_true, update_own) = site.shapes(0), site.shapes(1)
    for i, (axis, part) in enumerate(zip(layout, update, strict=True)):
        if true[i] == update_true[i] and own[i] == update_own[i]:
            axes.append(joined([axis, part]))
            continue
        require_prefixes(layout, [i], "it writes into an axis")
        require_prefixes(update, [i], "it writes an axis")
        if axis.is_padded or part.is_padded:
            bounds[i] = site.proof.size(true[i] - update_true[i])
        if part.is_padded:
            written.append(i)
        axes.append(axis.uneven)
    mask = site.proof.mask(update, written)

    def act(told: Told, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
        within = _within(told, starts, bounds)
        if not mask:
            return site.again(told, x, update, *within)
        room = [(0, update.shape[i] if i in written else 0) for i in range(x.ndim)]
        wide = jnp.pad(x, room)
        before = lax.dynamic_slice(wide, within, update.shape)
        update = jnp.where(mask.where(told, update.shape), update, before)
        wide = lax.dynamic_update_slice(wide, update, within)
        return [lax.slice(wide, (0,) * x.ndim, x.shape)]

    return [tuple(axes)], act


def _within(told: Told, starts: Sequence[Any], bounds: Mapping[int, Place]) -> list[Any]:
    return [
        jnp.clip(start, 0, told[bounds[i]].astype(start.dtype)) if i in bounds else start
        for i, start in enumerate(starts)
    ]


RULES: Mapping[str, Rule] = {
    "slice": static_slice,
    "split": split,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
}
