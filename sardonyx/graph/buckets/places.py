"""Which dimensions the keys of the option `buckets` mean: by name, or by an input and an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Dimension, ValueInfo
from sardonyx.printable import LONGEST_NAME, printable

# NumPy's arrays have no more.
MOST_AXES = 64

S = TypeVar("S")


class InputAxis(NamedTuple):
    """An axis of an input; negative ones count from the end, where the rank is unknown."""

    name: str
    axis: int

    def __str__(self) -> str:
        return f"{self.name}[{self.axis}]"


def placed(
    chosen: Mapping[Any, S], infos: Sequence[ValueInfo]
) -> tuple[dict[str, S], dict[InputAxis, S]]:
    """Return the sizes of dimensions that have a name, and of those that have none."""
    free = {d for info in infos for d in info.shape or () if isinstance(d, str)}
    named: dict[str, S] = {}
    unnamed: dict[InputAxis, S] = {}
    places: set[InputAxis] = set()
    for key, sizes in chosen.items():
        if isinstance(key, str):
            _require_free(key, free)
            named[key] = sizes
    for key, sizes in chosen.items():
        if isinstance(key, str):
            continue
        place, dimension = _place(key, infos)
        is_named_by_both = dimension in chosen
        if place in places or is_named_by_both or named.get(str(dimension), sizes) != sizes:
            raise InvalidInput(
                f"The buckets name the dimension of {place} twice: leave out one of the two."
            )
        places.add(place)
        if isinstance(dimension, str):
            named[dimension] = sizes
        else:
            unnamed[place] = sizes
    return named, unnamed


def _require_free(name: str, free: set[str]) -> None:
    if name not in free:
        names = ", ".join(sorted(free)) or "none"
        raise InvalidInput(
            f"The buckets name a dimension {printable(repr(name), LONGEST_NAME)}, but the free "
            f"dimensions of the model's inputs are: {names}. A dimension without a name is written "
            'as an input and an axis, such as ("X", 0).'
        )


def _place(key: Any, infos: Sequence[ValueInfo]) -> tuple[InputAxis, Dimension]:
    """Return the axis that a key means, and what the file declares of it."""
    is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str)
    if not is_pair or not isinstance(key[1], (int, np.integer)) or isinstance(key[1], bool):
        raise InvalidInput(
            f"The buckets have the key {printable(repr(key), LONGEST_NAME)}: pass the name of a "
            'dimension, or an input\'s name and an axis, such as ("X", 0).'
        )
    name, axis = key[0], int(key[1])
    info = next((info for info in infos if info.name == name), None)
    if info is None:
        names = ", ".join(info.name for info in infos) or "none"
        raise InvalidInput(
            f"The buckets name the input {printable(repr(name), LONGEST_NAME)}, which the model "
            f"does not have; its inputs are: {names}."
        )
    if info.container:
        raise InvalidInput(
            f"The buckets name the input '{info}', whose arrays have no axes of their own: only "
            "dimensions of tensors have buckets."
        )
    rank = MOST_AXES if info.shape is None else len(info.shape)
    if not -rank <= axis < rank:
        raise InvalidInput(
            f"The buckets name axis {axis} of the input '{info}', which has "
            f"{'at most ' if info.shape is None else ''}{rank} dimensions."
        )
    if info.shape is None:
        return InputAxis(name, axis), None
    place = InputAxis(name, axis % rank)
    dimension = info.shape[place.axis]
    if isinstance(dimension, int):
        raise InvalidInput(
            f"The buckets name axis {axis} of the input '{info}', whose size is fixed: leave it "
            "out of the buckets."
        )
    return place, dimension
