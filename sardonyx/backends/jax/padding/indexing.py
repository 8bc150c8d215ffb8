"""Gathering and scattering: places count from what is true, and nothing is written from padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from sardonyx.backends.jax.padding.axes import Axis, Layout, Place, Unpaddable, clean, joined
from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Act, Rule, Site
from sardonyx.backends.jax.padding.shaping import require_prefixes


def gather(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same(*(name for name in site.params if name != "slice_sizes"))
    numbers, (x, indices) = site.params["dimension_numbers"], site.layouts
    _require_whole_places(indices)
    batch = list(indices[:-1])
    for axis, row in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        batch[row] = joined([x[axis], batch[row]])
    bounds: dict[int, Place] = {}
    offsets = []
    for axis, *sizes in zip(
        range(len(x)), site.true.params["slice_sizes"], site.params["slice_sizes"], strict=True
    ):
        if axis in numbers.operand_batching_dims:
            continue
        kept = _window_axis(site, x, axis, sizes, bounds)
        if axis not in numbers.collapsed_slice_dims:
            offsets.append(kept)
    bound = _Bound.of(numbers.start_index_map, bounds, x, site.params["mode"])

    def act(told: Told, x: Any, indices: Any) -> Sequence[Any]:
        return site.again(told, x, bound.applied(told, indices))

    return [_interleaved(numbers.offset_dims, offsets, batch)], act


def scatter(site: Site) -> tuple[Sequence[Layout], Act]:
    site.require_same(*site.params)
    numbers, (x, indices, updates) = site.params["dimension_numbers"], site.layouts
    _require_whole_places(indices)
    bounds: dict[int, Place] = {}
    made = [axis.uneven for axis in x]
    for axis, (along, *sizes) in _windows(site).items():
        kept = _window_axis(site, x, axis, sizes, bounds)
        if along is not None and kept is x[axis]:
            made[axis] = joined([made[axis], updates[along].uneven])
        elif along is not None and updates[along].is_padded:
            raise Unpaddable("it writes a padded piece into an axis")
    rows = _rows(site)
    batching = dict(
        zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    )
    for row, axis in batching.items():
        made[axis] = joined([made[axis], rows[row]])
    mapped, mode = numbers.scatter_dims_to_operand_dims, site.params["mode"]
    bound = _Bound.of(mapped, bounds, x, mode)
    # What stands for nothing where the places are padded must not be written.
    mask = site.proof.mask(rows, [row for row in range(len(rows)) if row not in batching])
    if not mask:
        return [tuple(made)], lambda told, x, indices, updates: site.again(
            told, x, bound.applied(told, indices), updates
        )
    if mode == GatherScatterMode.CLIP or not mapped:
        raise Unpaddable("what it writes cannot be left out where its places are padded")
    beyond = [x[axis].padded for axis in mapped]
    drop = {"mode": GatherScatterMode.FILL_OR_DROP, "unique_indices": False}
    params = {**site.params, **drop, "indices_are_sorted": False}

    def act(told: Told, x: Any, indices: Any, updates: Any) -> Sequence[Any]:
        indices = _wide(bound.applied(told, indices))
        valid = mask.where(told, indices.shape)
        indices = jnp.where(valid, indices, jnp.asarray(beyond, indices.dtype))
        return [site.padded.primitive.bind(x, indices, updates, **params)]

    return [tuple(made)], act


def _rows(site: Site) -> Layout:
    """The axes that the places and what is written to them have in common."""
    _, indices, updates = site.layouts
    windows = site.params["dimension_numbers"].update_window_dims
    rest = (axis for i, axis in enumerate(updates) if i not in windows)
    return tuple(joined([a.uneven, b.uneven]) for a, b in zip(indices[:-1], rest, strict=True))


def _require_whole_places(indices: Layout) -> None:
    if indices[-1].is_padded:
        raise Unpaddable("the number of axes that it takes places on depends on the size")


def _window_axis(
    site: Site, x: Layout, axis: int, sizes: Sequence[int], bounds: dict[int, Place]
) -> Axis:
    """What a window keeps of an axis; where it is less than all, what is true bounds its place."""
    true, own = sizes
    if (true, own) == (x[axis].true, x[axis].padded) and own != 1:
        return x[axis]
    if site.proof.varies(true, own):
        raise Unpaddable("it takes or writes pieces of an axis whose length depends on its size")
    require_prefixes(x, [axis], "it takes places on an axis")
    if x[axis].is_padded:
        bounds[axis] = site.proof.size(x[axis].true - true)
    return clean(own)


def _windows(site: Site) -> dict[int, tuple[int | None, int, int]]:
    """For each axis of the operand where its windows are in the updates, and their sizes."""
    numbers = site.params["dimension_numbers"]
    true, own = site.shapes(2)
    along = iter(numbers.update_window_dims)
    found: dict[int, tuple[int | None, int, int]] = {}
    for axis in range(len(site.layouts[0])):
        if axis in numbers.inserted_window_dims:
            found[axis] = None, 1, 1
        elif axis not in numbers.operand_batching_dims:
            i = next(along)
            found[axis] = i, true[i], own[i]
    return found


def _interleaved(
    offset_dims: Sequence[int], offsets: Sequence[Axis], batch: Sequence[Axis]
) -> Layout:
    inner, outer = iter(offsets), iter(batch)
    count = len(offsets) + len(batch)
    return tuple(next(inner) if i in offset_dims else next(outer) for i in range(count))


@dataclass(frozen=True, slots=True)
class _Bound:
    """The last places that are true, by column of the indices, and places that are beyond all."""

    columns: Mapping[int, tuple[Place, int]]
    mode: GatherScatterMode

    @classmethod
    def of(cls, mapped: Sequence[int], bounds: Mapping[int, Place], x: Layout, mode: Any) -> _Bound:
        columns = {
            i: (bounds[axis], x[axis].padded) for i, axis in enumerate(mapped) if axis in bounds
        }
        return cls(columns, mode)

    def applied(self, told: Told, indices: Any) -> Any:
        """The indices, with those that are out of what is true treated as the mode says."""
        if not self.columns or self.mode == GatherScatterMode.PROMISE_IN_BOUNDS:
            return indices
        indices = _wide(indices)
        columns = [indices[..., i] for i in range(indices.shape[-1])]
        for i, (place, beyond) in self.columns.items():
            last = told[place].astype(indices.dtype)
            if self.mode == GatherScatterMode.CLIP:
                columns[i] = jnp.clip(columns[i], 0, last)
            else:
                columns[i] = jnp.where(columns[i] > last, beyond, columns[i])
        return jnp.stack(columns, axis=-1)


def _wide(indices: Any) -> Any:
    return indices if indices.dtype.itemsize >= 4 else indices.astype(np.int32)


SCATTERS = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

RULES: Mapping[str, Rule] = {
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
}
