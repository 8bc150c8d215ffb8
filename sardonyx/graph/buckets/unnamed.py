"""Buckets for dimensions that the file does not name: each call shows which of them are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.graph.buckets.places import InputAxis
from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.recording import PaddedCalls
from sardonyx.graph.buckets.relatives import Relatives
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import Dimension, ValueInfo
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights

# Maximum number of ways in which sizes of calls are equal; the oldest is forgotten.
MOST_PATTERNS = 64


class UnnamedCalls:
    """The recordings of padded calls, some of whose dimensions have no name in the file.

    Such dimensions with the same buckets get one name in calls where their sizes are equal, since
    most inputs that are padded alike share a size.
    """

    def __init__(
        self, new_buckets: Callable[[Sizes], Buckets], sizes: Sizes, infos: Sequence[ValueInfo]
    ) -> None:
        self._new_buckets = new_buckets
        self._sizes = sizes
        self._infos = infos
        self._taken = {d for info in infos for d in info.shape or () if isinstance(d, str)}
        # By the names of the dimensions of each input.
        self._calls: dict[Any, PaddedCalls] = {}

    def recording(
        self,
        plain: Recording,
        relatives: Relatives | None,
        values: Sequence[Any],
        weights: Weights,
    ) -> Recording:
        """Return the recording for calls with inputs like these: `plain` if nothing is padded."""
        if plain.inline:
            return plain
        return self._calls_like(values).recording(plain, relatives, values, weights)

    def _calls_like(self, values: Sequence[Any]) -> PaddedCalls:
        named: dict[Any, str] = {}
        dimensions: dict[str, dict[int, str]] = {}
        chosen = dict(self._sizes.chosen)
        shapes = {
            info.name: value.shape
            for info, value in zip(self._infos, values, strict=True)
            if hasattr(value, "shape")
        }
        for place, steps in self._sizes.unnamed.items():
            if place.name not in shapes:  # An optional input that these calls do not pass.
                continue
            axis, size = _axis_and_size(place, shapes[place.name])
            if axis in dimensions.setdefault(place.name, {}):
                raise InvalidInput(
                    f"The buckets name axis {axis} of the input {place.name!r} twice: leave out "
                    "one of the two."
                )
            name = named.setdefault((steps, size), self._free_name(str(place)))
            dimensions[place.name][axis] = name
            chosen[name] = steps
        key = tuple((name, len(shapes[name]), *axes.items()) for name, axes in dimensions.items())
        calls = self._calls.get(key)
        if calls is None:
            sizes = replace(self._sizes, chosen=chosen, unnamed={})
            infos = [
                _named(info, dimensions.get(info.name, {}), len(shapes.get(info.name, ())))
                for info in self._infos
            ]
            calls = self._calls.setdefault(key, PaddedCalls(self._new_buckets(sizes), infos))
            if len(self._calls) > MOST_PATTERNS:
                self._calls.pop(next(iter(self._calls)), None)
        return calls

    def _free_name(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        return name


def _axis_and_size(place: InputAxis, shape: Sequence[int]) -> tuple[int, int]:
    rank = len(shape)
    if not -rank <= place.axis < rank:
        raise InvalidInput(
            f"The buckets name axis {place.axis} of the input {place.name!r}, but the array of "
            f"this call has {rank} dimensions."
        )
    return place.axis % rank, shape[place.axis]


def _named(info: ValueInfo, names: dict[int, str], rank: int) -> ValueInfo:
    if not names:
        return info
    declared: Sequence[Dimension] = info.shape or (None,) * rank
    return replace(info, shape=tuple([names.get(axis, d) for axis, d in enumerate(declared)]))
