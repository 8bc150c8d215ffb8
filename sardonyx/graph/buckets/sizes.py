"""The sizes that calls are padded to, from the option `buckets`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.buckets.expressions import parse
from sardonyx.graph.buckets.formulas import MAX_DIMENSIONS
from sardonyx.graph.buckets.places import InputAxis, placed
from sardonyx.graph.ir import Dimension, ValueInfo

# By the name of a dimension, or by the name of an input and an axis.
Buckets = Mapping[str | tuple[str, int], Sequence[int] | str]

POWERS = "powers of two"
AUTOMATIC = "auto"
LARGEST_SIZE = 2**31 - 1
# Maximum number of sizes per dimension, as each is compiled separately.
MOST_SIZES = 1024


class Probes(NamedTuple):
    """Sizes to trace, and whether formulas can rely on them."""

    sizes: Sequence[Mapping[str, int]]
    are_enough: bool


@dataclass(frozen=True)
class Sizes:
    """For each named dimension, its sizes in ascending order; None stands for powers of two."""

    chosen: Mapping[str, tuple[int, ...] | None]
    # Whether the calls decide which dimensions are padded.
    are_automatic: bool = False
    # Whether results come back as inputs, one larger, as those of a decoder do.
    grow: bool = False
    # A program serves sizes down to this fraction of its bucket, until theirs has one.
    reach: int = 1
    # The sizes of dimensions that the file does not name.
    unnamed: Mapping[InputAxis, tuple[int, ...] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, buckets: Buckets | str | None, infos: Sequence[ValueInfo]) -> Sizes:
        """Check the option `buckets` against the model's inputs."""
        if buckets is None:
            return cls({})
        if isinstance(buckets, str) and buckets == AUTOMATIC:
            return cls({}, are_automatic=True)
        if not isinstance(buckets, Mapping):
            raise InvalidInput(
                f"The buckets are a {type(buckets).__name__}: pass a dict from names of dimensions "
                'to sizes, such as {"batch": [1, 8, 32]}, or "auto", or None.'
            )
        chosen = {key: _sizes(key, sizes) for key, sizes in buckets.items()}
        named, unnamed = placed(chosen, infos)
        return cls(named, unnamed=unnamed)

    def __bool__(self) -> bool:
        return bool(self.chosen or self.unnamed) or self.are_automatic

    def padded(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes that a call with these sizes is padded to.

        A size of 1 stays, because ONNX broadcasts it. So does a call with an empty array.
        """
        if 0 in sizes.values():
            return {}
        return {
            name: _at_least(sizes[name], chosen)
            for name, chosen in self.chosen.items()
            if sizes.get(name, 0) > 1
        }

    def bucket_of(self, names: Sequence[str], sizes: Sequence[int]) -> tuple[int, ...]:
        """Return what the sizes with these names are padded to, all of which are beyond 1."""
        pairs = zip(names, sizes, strict=True)
        return tuple([_at_least(size, self.chosen[name]) for name, size in pairs])

    def with_smaller_buckets(self, sizes: Mapping[str, int]) -> Sizes | None:
        """Return buckets half as far above these sizes; None if there are no such sizes."""
        chosen = dict(self.chosen)
        for name, padded in self.padded(sizes).items():
            between = (sizes[name] + padded) // 2
            if sizes[name] < padded and (steps := chosen[name]) is not None:
                chosen[name] = tuple(sorted({*steps, between}))
        return replace(self, chosen=chosen) if chosen != self.chosen else None

    def probes(self, padded: Mapping[str, int], traced: Sequence[Mapping[str, int]]) -> Probes:
        """Return other sizes to trace for a bucket: the smallest and the largest, combined.

        For a single dimension, sizes that were traced before replace them if they are as far apart,
        and if two of all neighbour each other: what depends on parity shows at neighbours.
        """
        if len(padded) == 1:
            (name, size), *_ = padded.items()
            known = {sizes[name] for sizes in traced if sizes.keys() == padded.keys()}
            numbers = _pair(size, self._smallest(name, size), {n for n in known if n < size})
            chosen = [{name: n} for n in dict.fromkeys(numbers) if n != size]
            return Probes(chosen, are_enough=True)
        ends = {
            name: (self._smallest(name, size), max(size - 1, 2)) for name, size in padded.items()
        }
        corners = [dict(zip(ends, sizes, strict=True)) for sizes in product(*ends.values())]
        corners.insert(1, corners.pop())
        are_enough = len(padded) <= MAX_DIMENSIONS
        corners = corners if are_enough else corners[:2]
        return Probes([sizes for sizes in corners if sizes != padded], are_enough)

    def _smallest(self, name: str, size: int) -> int:
        """Return the smallest size that the program of a bucket is to serve."""
        own = self._below(name, size) + 1
        return max(2, min(own, size // self.reach if self.reach > 1 else own))

    def _below(self, name: str, size: int) -> int:
        chosen = self.chosen[name]
        if chosen is None:
            return size // 2
        if size > chosen[-1]:
            return size - chosen[-1]
        return max((n for n in chosen if n < size), default=0)


def _sizes(name: Any, sizes: Any) -> tuple[int, ...] | None:
    if isinstance(sizes, str) and sizes == POWERS:
        return None
    advice = f"pass a list of sizes in ascending order, or {POWERS!r}"
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        raise InvalidInput(f"The buckets of the dimension {name!r} are {sizes!r}: {advice}.")
    chosen = list(islice(sizes, MOST_SIZES + 1))
    if len(chosen) > MOST_SIZES:
        raise InvalidInput(
            f"The dimension {name!r} has more than {MOST_SIZES:,} buckets, and each is compiled "
            "separately: pass fewer sizes."
        )
    whole = [n for n in chosen if isinstance(n, (int, np.integer)) and not isinstance(n, bool)]
    if not whole or len(whole) < len(chosen) or whole != sorted(set(whole)) or whole[0] < 1:
        raise InvalidInput(f"The buckets of the dimension {name!r} are {chosen}: {advice}.")
    if whole[-1] > LARGEST_SIZE:
        raise InvalidInput(
            f"The buckets of the dimension {name!r} go up to {whole[-1]}, but no axis can have "
            f"more than {LARGEST_SIZE:,} elements: {advice}."
        )
    return tuple(map(int, whole))


def _pair(size: int, smallest: int, traced: Collection[int]) -> tuple[int, int]:
    """Return a size of at most `smallest`, and one more; two of these and `size` are neighbours."""
    pairs = [(n - 1, n) for n in traced if n <= smallest and n - 1 in traced]
    if pairs:
        return max(pairs)
    low = max((n for n in traced if n <= smallest), default=smallest)
    return low, next((n for n in (low + 1, low - 1) if n in traced), max(size - 1, 2))


def _at_least(size: int, chosen: tuple[int, ...] | None) -> int:
    if chosen is None:
        return 1 << (size - 1).bit_length()
    largest = chosen[-1]
    if size > largest:
        return -(-size // largest) * largest
    return chosen[bisect_left(chosen, size)]


def resized(
    declared: Sequence[Dimension] | None,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    changed: Mapping[str, int],
) -> tuple[int, ...]:
    """Return an array's shape after some of the named sizes changed."""
    if declared is None:
        return tuple(shape)
    pairs = zip(declared, shape, strict=True)
    return tuple(_resized(dimension, size, sizes, changed) for dimension, size in pairs)


def _resized(
    declared: Dimension, size: int, sizes: Mapping[str, int], changed: Mapping[str, int]
) -> int:
    if not isinstance(declared, str):
        return size
    if declared in changed:
        return changed[declared]
    expression = parse(declared)
    if expression is None or expression.value(sizes) != size:
        return size
    after = expression.value({**sizes, **changed})
    return size if after is None else after
