"""What calls have in common that differ in sizes only, and how the next of them is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sardonyx.graph.buckets.families import CallSizes, SizePattern
from sardonyx.graph.calls.dimensions import Dimensions, Take


class Relatives(NamedTuple):
    """What calls have in common that differ in sizes only."""

    donated: tuple[str, ...]
    # The library, dtype and rank of each array.
    kinds: tuple[Any, ...]
    # The sizes of all arrays; all beyond 1 count as 2.
    sizes: tuple[int, ...]

    @property
    def has_single(self) -> bool:
        """Whether an array has a size of 1."""
        return 1 in self.sizes

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The dtypes of the arrays."""
        return [dtype for _, dtype, _ in self.kinds]

    def resembles(self, other: Relatives) -> bool:
        """Whether they differ only in which sizes are 1, or 0."""
        return self[:2] == other[:2]

    @classmethod
    def of(cls, key: Any) -> Relatives | None:
        """Return those of a call with this key; None if one of its arguments is not an array."""
        donated, arrays = key
        try:
            kinds = tuple([(library, dtype, len(shape)) for library, shape, dtype in arrays])
            sizes = tuple([n if n < 2 else 2 for _, shape, _ in arrays for n in shape])
        except (TypeError, ValueError):
            return None
        return cls(donated, kinds, sizes)


@dataclass(frozen=True, eq=False, slots=True)
class Likeness:
    """What calls share that differ in padded sizes alone: the shapes follow from these sizes.

    To compare a call with shapes made from its sizes takes less time than to look at all of its
    dimensions: many arrays have the same shape, as the caches of a decoder do.
    """

    relatives: Relatives
    # What was donated, the libraries and the dtypes.
    kinds: tuple[Any, ...]
    # The dimensions that do not follow from the sizes.
    rest: Dimensions
    # The same, each once.
    others: Dimensions
    pattern: SizePattern
    # Each distinct shape, out of the sizes, the computed dimensions and the others.
    distinct: Sequence[Take]
    # The shape of each array, out of these.
    of_arrays: Take

    @classmethod
    def of(
        cls, key: Any, relatives: Relatives, pattern: SizePattern, sizes: CallSizes
    ) -> Likeness | None:
        """Return what recognises calls like the one with this key.

        None if a dimension that is computed from sizes is 1 or 0: such calls have other relatives.
        """
        numbers, others = pattern.numbers(sizes.shapes)
        distinct = {each: i for i, each in enumerate(dict.fromkeys(numbers))}
        donated, arrays = key
        libraries, _, dtypes = zip(*arrays, strict=True)
        found = cls(
            relatives,
            (donated, libraries, dtypes),
            sizes.rest,
            others,
            pattern,
            list(map(Take, distinct)),
            Take([distinct[each] for each in numbers]),
        )
        return found if found.sizes(key) is not None else None

    def sizes(self, key: Any) -> CallSizes | None:
        """Return the sizes of a call; None if it is not alike."""
        (donated, arrays), pattern = key, self.pattern
        try:
            libraries, shapes, dtypes = zip(*arrays, strict=True)
            if (donated, libraries, dtypes) != self.kinds:
                return None
            sizes = tuple([shapes[array][axis] for array, axis in pattern.places])
        except (IndexError, TypeError, ValueError):
            return None
        values = sizes
        if pattern.computed:
            named = dict(zip(pattern.names, sizes, strict=True))
            values += tuple([expression.value(named) or 0 for _, expression in pattern.computed])
        if min(values) < 2:
            return None
        values += self.others
        expected = self.of_arrays([take(values) for take in self.distinct])
        return CallSizes(sizes, self.rest, expected) if shapes == expected else None
