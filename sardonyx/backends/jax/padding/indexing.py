"""Gather and scatter: indices are bounded by true sizes, and padding is never written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.jax.padding.shaping import require_prefixes
from sardonyx.backends.padding.axes import Axis, Layout, Slot, Unpaddable, joined, unpadded


def gather(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*(name for name in pair.params if name != "slice_sizes"))
    numbers, (x, indices) = pair.params["dimension_numbers"], pair.layouts
    _require_unpadded_index_vector(indices)
    batch = list(indices[:-1])
    for axis, row in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        batch[row] = joined([x[axis], batch[row]])
    bounds: dict[int, Slot] = {}
    offsets = []
    for axis, *sizes in zip(
        range(len(x)), pair.true.params["slice_sizes"], pair.params["slice_sizes"], strict=True
    ):
        if axis in numbers.operand_batching_dims:
            continue
        window = _window_axis(pair, x, axis, sizes, bounds)
        if axis not in numbers.collapsed_slice_dims:
            offsets.append(window)
    bound = _bounding(numbers.start_index_map, bounds, x, pair.params["mode"])

    def run(runtime_args: RuntimeArgs, x: Any, indices: Any) -> Sequence[Any]:
        return pair.unchanged(runtime_args, x, bound(runtime_args, indices))

    return [_interleaved(numbers.offset_dims, offsets, batch)], run


def scatter(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same(*pair.params)
    numbers, (x, indices, updates) = pair.params["dimension_numbers"], pair.layouts
    _require_unpadded_index_vector(indices)
    bounds: dict[int, Slot] = {}
    result = [axis.nonuniform for axis in x]
    for axis, (along, *sizes) in _windows(pair).items():
        window = _window_axis(pair, x, axis, sizes, bounds)
        if along is not None and window is x[axis]:
            result[axis] = joined([result[axis], updates[along].nonuniform])
        elif along is not None and updates[along].is_padded:
            raise Unpaddable("it writes a padded window into an axis")
    rows = _rows(pair)
    batching = dict(
        zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    )
    for row, axis in batching.items():
        result[axis] = joined([result[axis], rows[row]])
    mapped, mode = numbers.scatter_dims_to_operand_dims, pair.params["mode"]
    bound = _bounding(mapped, bounds, x, mode)
    # Padded indices must not write: they move out of bounds, where the mode drops writes.
    mask = pair.proof.mask(rows, [row for row in range(len(rows)) if row not in batching])
    if not mask:
        return [tuple(result)], lambda runtime_args, x, indices, updates: pair.unchanged(
            runtime_args, x, bound(runtime_args, indices), updates
        )
    if mode == GatherScatterMode.CLIP or not mapped:
        raise Unpaddable("its indices are padded, and its mode cannot drop what these would write")
    beyond = [x[axis].padded for axis in mapped]
    drop = {"mode": GatherScatterMode.FILL_OR_DROP, "unique_indices": False}
    params = {**pair.params, **drop, "indices_are_sorted": False}

    def run(runtime_args: RuntimeArgs, x: Any, indices: Any, updates: Any) -> Sequence[Any]:
        indices = _wide(bound(runtime_args, indices))
        valid = mask.where(runtime_args, indices.shape)
        indices = jnp.where(valid, indices, jnp.asarray(beyond, indices.dtype))
        return [pair.padded.primitive.bind(x, indices, updates, **params)]

    return [tuple(result)], run


def _rows(pair: EquationPair) -> Layout:
    """The axes that the indices and the updates have in common."""
    _, indices, updates = pair.layouts
    windows = pair.params["dimension_numbers"].update_window_dims
    rest = (axis for i, axis in enumerate(updates) if i not in windows)
    return tuple(
        joined([a.nonuniform, b.nonuniform]) for a, b in zip(indices[:-1], rest, strict=True)
    )


def _require_unpadded_index_vector(indices: Layout) -> None:
    if indices[-1].is_padded:
        raise Unpaddable("the number of axes that it indexes depends on the size")


def _window_axis(
    pair: EquationPair, x: Layout, axis: int, sizes: Sequence[int], bounds: dict[int, Slot]
) -> Axis:
    """The axis of a window. If it is shorter than the operand's, the true size bounds its index."""
    true, own = sizes
    if (true, own) == (x[axis].true, x[axis].padded) and own != 1:
        return x[axis]
    if pair.proof.varies(true, own):
        raise Unpaddable("it reads or writes windows whose length depends on the size of the axis")
    require_prefixes(x, [axis], "it indexes an axis")
    if x[axis].is_padded:
        bounds[axis] = pair.proof.size_slot(x[axis].true - true)
    return unpadded(own)


def _windows(pair: EquationPair) -> dict[int, tuple[int | None, int, int]]:
    """For each axis of the operand its axis in the updates, and the sizes of the window."""
    numbers = pair.params["dimension_numbers"]
    true, own = pair.operand_shapes(2)
    along = iter(numbers.update_window_dims)
    windows: dict[int, tuple[int | None, int, int]] = {}
    for axis in range(len(pair.layouts[0])):
        if axis in numbers.inserted_window_dims:
            windows[axis] = None, 1, 1
        elif axis not in numbers.operand_batching_dims:
            i = next(along)
            windows[axis] = i, true[i], own[i]
    return windows


def _interleaved(
    offset_dims: Sequence[int], offsets: Sequence[Axis], batch: Sequence[Axis]
) -> Layout:
    inner, outer = iter(offsets), iter(batch)
    count = len(offsets) + len(batch)
    return tuple(next(inner) if i in offset_dims else next(outer) for i in range(count))


def _bounding(
    mapped: Sequence[int], bounds: Mapping[int, Slot], x: Layout, mode: Any
) -> Callable[[RuntimeArgs, Any], Any]:
    """A function of indices that treats those beyond the true size as out of bounds."""
    last_and_beyond = {i: (bounds[a], x[a].padded) for i, a in enumerate(mapped) if a in bounds}

    def bound(runtime_args: RuntimeArgs, indices: Any) -> Any:
        if not last_and_beyond or mode == GatherScatterMode.PROMISE_IN_BOUNDS:
            return indices
        indices = _wide(indices)
        columns = [indices[..., i] for i in range(indices.shape[-1])]
        for i, (slot, beyond) in last_and_beyond.items():
            last = runtime_args[slot].astype(indices.dtype)
            if mode == GatherScatterMode.CLIP:
                columns[i] = jnp.clip(columns[i], 0, last)
            else:
                columns[i] = jnp.where(columns[i] > last, beyond, columns[i])
        return jnp.stack(columns, axis=-1)

    return bound


def _wide(indices: Any) -> Any:
    return indices if indices.dtype.itemsize >= 4 else indices.astype(np.int32)


SCATTERS = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

RULES: Mapping[str, Rule] = {"gather": gather, **dict.fromkeys(SCATTERS, scatter)}
