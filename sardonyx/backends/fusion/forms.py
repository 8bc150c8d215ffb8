"""Other forms of an array, by index rules, and elements at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.fusion import index_rules
from sardonyx.backends.fusion.element_functions import ElementFunctions
from sardonyx.backends.fusion.nodes import CARRIED, Indexed, Joined
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.shape_arrays import NoShapeRule
from sardonyx.backends.shape_backend import SHAPES

# A concatenation of more arrays is one of concatenations.
MOST_JOINED = 16


class Forms(ElementFunctions):
    """What kernels only read elsewhere."""

    def _indexed(self, result: Any, rule: index_rules.Rule, x: Any, *indices: Any) -> Symbol:
        return self._like(result, Indexed, x.node, *(i.node for i in indices), rule=rule)

    def reshape(self, x: Any, shape: Any) -> Any:
        result = SHAPES.reshape(x.blank, shape)
        return x if result.shape == x.shape else self._form(result, index_rules.Reshape(), x)

    def _form(self, result: Any, rule: index_rules.Rule, x: Any) -> Any:
        """Record a view, of arrays of any dtype."""
        return self._like(result, Indexed, x.node, rule=rule)

    def expand_dims(self, x: Any, *, axis: Any = 0) -> Any:
        return self.reshape(x, SHAPES.expand_dims(x.blank, axis=axis).shape)

    def squeeze(self, x: Any, axis: Any) -> Any:
        return self.reshape(x, SHAPES.squeeze(x.blank, axis).shape)

    def permute_dims(self, x: Any, axes: Any) -> Any:
        axes = tuple([int(axis) % x.ndim for axis in axes])
        if axes == tuple(range(x.ndim)):
            return x
        result = SHAPES.permute_dims(x.blank, axes)
        moved = [axis for axis in axes if x.shape[axis] != 1]
        rule = index_rules.Reshape() if moved == sorted(moved) else index_rules.Permute(axes)
        return self._form(result, rule, x)

    def matrix_transpose(self, x: Any) -> Any:
        if x.ndim < 2:
            raise ValueError("the matrix transpose of an array of fewer than two axes")
        return self.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))

    def moveaxis(self, x: Any, source: Any, destination: Any) -> Any:
        sources, places = (
            [axis % x.ndim for axis in ((side,) if isinstance(side, int) else side)]
            for side in (source, destination)
        )
        order = [axis for axis in range(x.ndim) if axis not in sources]
        for place, axis in sorted(zip(places, sources, strict=True)):
            order.insert(place, axis)
        return self.permute_dims(x, order)

    def broadcast_to(self, x: Any, shape: Any) -> Any:
        result = SHAPES.broadcast_to(x.blank, tuple(shape))
        return x if result.shape == x.shape else self._form(result, index_rules.Broadcast(), x)

    def broadcast_arrays(self, *arrays: Any) -> Sequence[Any]:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [self.broadcast_to(array, shape) for array in arrays]

    def item(self, x: Any, key: Any) -> Any:
        """Return `x[key]`."""
        parts = key if isinstance(key, tuple) else (key,)
        result = x.blank[key]
        if any(part is Ellipsis for part in parts):
            place = next(i for i, part in enumerate(parts) if part is Ellipsis)
            rest = x.ndim - sum(part is not None and part is not Ellipsis for part in parts)
            parts = (*parts[:place], *(slice(None),) * rest, *parts[place + 1 :])
        rest = x.ndim - sum(part is not None for part in parts)
        parts = (*parts, *(slice(None),) * rest)
        is_whole = result.shape == x.shape and not any(
            isinstance(part, slice) and part.step not in (None, 1) for part in parts
        )
        return x if is_whole else self._form(result, index_rules.Sliced(parts), x)

    def flip(self, x: Any, *, axis: Any = None) -> Any:
        given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {one % x.ndim for one in given}
        backwards, whole = slice(None, None, -1), slice(None)
        return self.item(x, tuple([backwards if i in axes else whole for i in range(x.ndim)]))

    def unstack(self, x: Any, *, axis: int = 0) -> Sequence[Any]:
        before = (slice(None),) * (axis % x.ndim)
        return [self.item(x, (*before, i)) for i in range(x.shape[axis])]

    def concat(self, arrays: Any, *, axis: int | None = 0) -> Any:
        if axis is None:
            raise NoShapeRule
        arrays = [self.asarray(array) for array in arrays]
        result = SHAPES.concat([array.blank for array in arrays], axis=axis)
        if result.dtype not in CARRIED or not result.size:
            return self.opaque("concat", arrays, axis=axis)
        cast = [self.astype(array, result.dtype) for array in arrays if array.size]
        if len(cast) == 1:
            return self._copied(cast[0])
        if len(cast) > MOST_JOINED:
            starts = range(0, len(cast), MOST_JOINED)
            parts = [self.concat(cast[i : i + MOST_JOINED], axis=axis) for i in starts]
            return self.concat(parts, axis=axis)
        nodes = [array.node for array in cast]
        return self._like(result, Joined, *nodes, axis=axis % len(result.shape))

    def stack(self, arrays: Any, *, axis: int = 0) -> Any:
        return self.concat([self.expand_dims(array, axis=axis) for array in arrays], axis=axis)

    def roll(self, x: Any, shift: Any, *, axis: Any = None) -> Any:
        if not isinstance(shift, int) or not isinstance(axis, int) or not x.size:
            return self.opaque("roll", x, shift, axis=axis)
        place = axis % x.ndim
        cut = -shift % x.shape[place]
        before = (slice(None),) * place
        parts = [self.item(x, (*before, part)) for part in (slice(cut, None), slice(0, cut))]
        return self.concat(parts, axis=place)

    def tile(self, x: Any, repetitions: Any) -> Any:
        result = SHAPES.tile(x.blank, repetitions)
        rank = len(result.shape)
        sizes = (1,) * (rank - x.ndim) + x.shape
        pairs = [
            (new // old if old else 0, old) for new, old in zip(result.shape, sizes, strict=True)
        ]
        if not result.size:
            return self.put(np.empty(result.shape, result.dtype))
        x = self.reshape(x, tuple([size for _, old in pairs for size in (1, old)]))
        x = self.broadcast_to(x, tuple([size for pair in pairs for size in pair]))
        return self._copied(self.reshape(x, result.shape))

    def repeat(self, x: Any, repeats: Any, *, axis: int | None = None) -> Any:
        if axis is None or not isinstance(repeats, int) or not x.size or not repeats:
            return self.opaque("repeat", x, repeats, axis=axis)
        result = SHAPES.repeat(x.blank, repeats, axis=axis)
        end = axis % x.ndim + 1
        x = self.reshape(x, (*x.shape[:end], 1, *x.shape[end:]))
        x = self.broadcast_to(x, (*x.shape[:end], repeats, *x.shape[end + 1 :]))
        return self._copied(self.reshape(x, result.shape))

    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        if x.dtype not in CARRIED or isinstance(value, str) or _any_negative(widths):
            return self.opaque("pad", x, widths, value)
        padded = super().pad(x, widths, value)
        return self._copied(x) if padded is x else padded

    # -- computed indices -------------------------------------------------------------------------

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        indices = self.asarray(indices)
        result = SHAPES.take(x.blank, indices.blank, axis=axis)
        if not _is_integer(indices) or x.dtype not in CARRIED:
            return self.opaque("take", x, indices, axis=axis)
        return self._indexed(result, index_rules.Take(axis % x.ndim, indices.ndim), x, indices)

    def take_in_range(self, x: Any, indices: Any) -> Any:
        return self.take(x, indices, axis=0)

    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        indices = self.asarray(indices)
        result = SHAPES.take_along_axis(x.blank, indices.blank, axis=axis)
        if not _is_integer(indices) or x.dtype not in CARRIED or not x.size:
            return self.opaque("take_along_axis", x, indices, axis=axis)
        place = axis % x.ndim
        indices = self.broadcast_to(indices, result.shape)
        shape = (*result.shape[:place], x.shape[place], *result.shape[place + 1 :])
        return self._indexed(
            result, index_rules.TakeAlong(place), self.broadcast_to(x, shape), indices
        )

    def gather(self, x: Any, places: Any) -> Any:
        places = [self.asarray(place) for place in places]
        result = SHAPES.gather(x.blank, [place.blank for place in places])
        if not all(map(_is_integer, places)) or x.dtype not in CARRIED or not x.size:
            return self.opaque("gather", x, places)
        rank = len(result.shape) - x.ndim + len(places)
        shape = result.shape[:rank]
        places = [self.broadcast_to(place, shape) for place in places]
        return self._indexed(result, index_rules.Gather(len(places), rank), x, *places)


def _is_integer(x: Any) -> bool:
    return x.dtype.kind in "iu" and x.dtype.name != "uint64"


def _any_negative(widths: Any) -> bool:
    return any(width < 0 for pair in widths for width in pair)
