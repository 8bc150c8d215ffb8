"""The padding that a TPU's tiles add to what the kernels of a program write."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sardonyx.targets.child.program_text import Instruction, nbytes

# An array with its axes from the innermost one, and its first tiling: f32[3,7]{1,0:T(8,128)}.
_TILED = re.compile(
    r"\b(?P<type>pred|bf16|[sufc]\d+[a-z0-9]*)\[(?P<sizes>[0-9,]*)\]"
    r"\{(?P<order>[0-9,]*):T\((?P<tile>[0-9,]+)\)"
)


@dataclass(frozen=True)
class Padding:
    """Bytes of kernels' results, and of the padding beside them by "size as size in tiles"."""

    results: int
    added: dict[str, int]


def padding_of(kernels: Iterable[Instruction]) -> Padding:
    """Add up the padding of the results of some kernels."""
    results, added = 0, Counter[str]()
    for kernel in kernels:
        if kernel.operation.endswith("-start"):  # A copy, with its operand among the types.
            continue
        results += sum(nbytes(*array) for array in kernel.arrays)
        for match in _TILED.finditer(kernel.types):
            for label, size in _added(match):
                added[label] += size
    return Padding(results, {label: size for label, size in added.most_common() if size})


def _added(match: re.Match[str]) -> Iterator[tuple[str, int]]:
    shape = _numbers(match["sizes"])
    size = nbytes(match["type"], shape)
    axes = _numbers(match["order"])
    # A tile's last number is that of the innermost axis. What an axis adds, the next one repeats.
    for axis, tile in zip(axes, reversed(_numbers(match["tile"])), strict=False):
        if not shape[axis]:
            return
        padded = math.ceil(shape[axis] / tile) * tile
        grown = size * padded // shape[axis]
        if grown > size:
            yield f"{shape[axis]} as {padded}", grown - size
        size = grown


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))
