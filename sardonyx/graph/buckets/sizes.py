"""Which sizes calls are padded to: what `buckets` says of each free dimension of a model."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Dimension, ValueInfo

Buckets = Mapping[str, Sequence[int] | str]

POWERS = "powers of two"
LARGEST_SIZE = 2**31 - 1
# Each is compiled for itself.
MOST_SIZES = 1024


@dataclass(frozen=True)
class Sizes:
    """For each named dimension the sizes that it may have; None stands for powers of two."""

    chosen: Mapping[str, tuple[int, ...] | None]

    @classmethod
    def of(cls, buckets: Buckets | None, infos: Sequence[ValueInfo]) -> Sizes:
        """What a caller has asked for, checked against the model's inputs."""
        if buckets is None:
            return cls({})
        if not isinstance(buckets, Mapping):
            raise InvalidInput(
                f"The buckets are a {type(buckets).__name__}: pass a dict from names of dimensions "
                f'to sizes, {{"batch": [1, 8, 32]}}.'
            )
        free = {d for info in infos for d in info.shape or () if isinstance(d, str)}
        for name in buckets:
            if name not in free:
                named = ", ".join(sorted(free)) or "none"
                raise InvalidInput(
                    f"The buckets name a dimension {name!r}, and the free dimensions of the "
                    f"model's inputs are: {named}."
                )
        return cls({name: _sizes(name, sizes) for name, sizes in buckets.items()})

    def __bool__(self) -> bool:
        return bool(self.chosen)

    def padded(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to pad to, for a call's sizes.

        A size of 1 stays, since ONNX stretches it to any other; and so does a call without data.
        """
        if 0 in sizes.values():
            return {}
        return {
            name: _at_least(sizes[name], chosen)
            for name, chosen in self.chosen.items()
            if sizes.get(name, 0) > 1
        }

    def probes(self, padded: Mapping[str, int]) -> list[dict[str, int]]:
        """Other sizes that are padded to these: the largest, and the smallest."""
        largest = {name: max(size - 1, 2) for name, size in padded.items()}
        smallest = {name: max(self._below(name, size) + 1, 2) for name, size in padded.items()}
        return [sizes for sizes in (largest, smallest) if sizes != padded]

    def _below(self, name: str, size: int) -> int:
        chosen = self.chosen[name]
        if chosen is None:
            return size // 2
        return (
            max((n for n in chosen if n < size), default=0)
            if size <= chosen[-1]
            else (size - chosen[-1])
        )


def _sizes(name: str, sizes: Any) -> tuple[int, ...] | None:
    if isinstance(sizes, str) and sizes == POWERS:
        return None
    way = f"pass a list of sizes in ascending order, or {POWERS!r}"
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        raise InvalidInput(f"The buckets of the dimension {name!r} are {sizes!r}: {way}.")
    chosen = list(islice(sizes, MOST_SIZES + 1))
    if len(chosen) > MOST_SIZES:
        raise InvalidInput(
            f"The dimension {name!r} has more than {MOST_SIZES:,} buckets, each of which is a "
            "program of its own: pass a few sizes."
        )
    whole = [n for n in chosen if isinstance(n, (int, np.integer)) and not isinstance(n, bool)]
    if not whole or len(whole) < len(chosen) or whole != sorted(set(whole)) or whole[0] < 1:
        raise InvalidInput(f"The buckets of the dimension {name!r} are {chosen}: {way}.")
    if whole[-1] > LARGEST_SIZE:
        raise InvalidInput(
            f"The buckets of the dimension {name!r} go up to {whole[-1]}: no array has more than "
            f"{LARGEST_SIZE:,} elements along an axis here; {way}."
        )
    return tuple(map(int, whole))


def _at_least(size: int, chosen: tuple[int, ...] | None) -> int:
    if chosen is None:
        return 1 << (size - 1).bit_length()
    return next((n for n in chosen if n >= size), -(-size // chosen[-1]) * chosen[-1])


@dataclass(frozen=True)
class Expression:
    """The name of a dimension as exporters write them: `past + 1`, of other dimensions' names."""

    text: str

    @cached_property
    def _tree(self) -> ast.expr | None:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError:
            return None

    def value(self, sizes: Mapping[str, int]) -> int | None:
        """What it comes to, or None where it is no more than a name."""
        return None if self._tree is None else _value(self._tree, sizes)


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return sizes.get(tree.id)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        sides = _value(tree.left, sizes), _value(tree.right, sizes)
        if sides[0] is not None and sides[1] is not None:
            return _OPERATORS[type(tree.op)](sides[0], sides[1])
    return None


def resized(
    declared: Dimension, size: int, sizes: Mapping[str, int], changed: Mapping[str, int]
) -> int:
    """A dimension's size where those that are named in `changed` have others than in `sizes`."""
    if not isinstance(declared, str):
        return size
    if declared in changed:
        return changed[declared]
    expression = Expression(declared)
    if expression.value(sizes) != size:
        return size
    after = expression.value({**sizes, **changed})
    return size if after is None else after
