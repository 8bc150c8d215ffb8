"""Einsum, computed as matrix products of two operands at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from string import ascii_letters
from typing import NamedTuple, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.precision import at_least_float32

# A letter, or a number for one of the axes that the ellipsis stands for.
Label: TypeAlias = str | int
Labels: TypeAlias = tuple[Label, ...]

# Maximum number of operands among which the next pair is chosen.
MOST_COMPARED = 16


class _Operand(NamedTuple):
    array: Array
    labels: Labels


@op
@at_least_float32
def Einsum(xp: Backend, *Inputs: Array, equation: str) -> Array:
    terms, output = _parsed(equation, [x.ndim for x in Inputs])
    diagonals = [_diagonal(xp, *pair) for pair in zip(Inputs, terms, strict=True)]
    sizes = _sizes(diagonals)
    operands = [_without_ones(xp, operand, sizes) for operand in diagonals]
    operands = [
        _summed(xp, operand, _needed(output, operands[:i] + operands[i + 1 :]))
        for i, operand in enumerate(operands)
    ]
    while len(operands) > 1:
        i, j = _next_pair(operands, output, sizes)
        b, a = operands.pop(j), operands.pop(i)
        operands.insert(0, _product(xp, a, b, _needed(output, operands), sizes))
    return _in_order(xp, operands[0], output)


# -- parsing an equation --------------------------------------------------------------------------


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each input's axes, and those of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ValueError(
            f"equation {equation!r} needs {len(parts)} inputs, but there are {len(ranks)}"
        )
    counts = {rank - len(p) + 3 for p, rank in zip(parts, ranks, strict=True) if "..." in p}
    if len(counts) > 1:
        raise ValueError(
            f"the ellipsis in {equation!r} stands for different numbers of axes, {sorted(counts)}"
        )
    spread = tuple(range(max(counts, default=0)))
    terms = [_labels(part, spread) for part in parts]
    for part, term, rank in zip(parts, terms, ranks, strict=True):
        if len(term) != rank:
            raise ValueError(f"{part!r} in {equation!r} does not fit an input of rank {rank}")
    if arrow:
        output = _labels(right, spread)
        if len(set(output)) < len(output) or not set(output) <= {x for t in terms for x in t}:
            raise ValueError(f"output {right!r} repeats a letter, or uses one that no input has")
        return terms, output
    letters = left.replace("...", "").replace(",", "")
    return terms, (*spread, *sorted(x for x in set(letters) if letters.count(x) == 1))


def _labels(part: str, spread: Labels) -> Labels:
    head, dots, tail = part.partition("...")
    if not set(head + tail) <= set(ascii_letters):
        raise ValueError(f"{part!r} must consist of letters and at most one ellipsis")
    return (*head, *(spread if dots else ()), *tail)


def _sizes(operands: Iterable[_Operand]) -> Mapping[Label, int]:
    """Return the size of each label; a size of 1 broadcasts to any other."""
    sizes: dict[Label, int] = {}
    for operand in operands:
        for label, size in zip(operand.labels, operand.array.shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise ValueError(
                    f"label {label!r} has the sizes {sizes[label]} and {size}, which do not "
                    "broadcast"
                )
    return sizes


# -- one operand ----------------------------------------------------------------------------------


def _diagonal(xp: Backend, x: Array, labels: Labels) -> _Operand:
    """Return the operand with each label once, taking the diagonal along repeated ones."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            size = x.shape[first]
            if x.shape[second] != size:
                raise ValueError(
                    f"shape {x.shape} has no diagonal along axes {first} and {second}, which "
                    "differ in size"
                )
            x = xp.moveaxis(x, (first, second), (-2, -1))
            x = xp.reshape(x, (*x.shape[:-2], size * size))[..., :: size + 1]
            others = (other for i, other in enumerate(labels) if i not in (first, second))
            labels = (*others, label)
    return _Operand(x, labels)


def _without_ones(xp: Backend, operand: _Operand, sizes: Mapping[Label, int]) -> _Operand:
    """Return the operand without the axes along which it is broadcast."""
    x, labels = operand
    along = [x.shape[i] == 1 != sizes[label] for i, label in enumerate(labels)]
    if not any(along):
        return operand
    axes = [i for i, is_broadcast in enumerate(along) if not is_broadcast]
    x = xp.reshape(x, tuple(x.shape[i] for i in axes))
    return _Operand(x, tuple(labels[i] for i in axes))


def _needed(output: Labels, others: Iterable[_Operand]) -> set[Label]:
    """Return the labels that the output or other operands still use."""
    return {*output}.union(*(operand.labels for operand in others))


def _summed(xp: Backend, operand: _Operand, needed: set[Label]) -> _Operand:
    x, labels = operand
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return operand
    remaining = tuple(label for label in labels if label in needed)
    return _Operand(xp.sum(x, axis=axes, dtype=x.dtype), remaining)


def _in_order(xp: Backend, operand: _Operand, labels: Labels) -> Array:
    x, order = operand
    return x if order == labels else xp.permute_dims(x, tuple(map(order.index, labels)))


# -- two operands ---------------------------------------------------------------------------------


def _next_pair(
    operands: Sequence[_Operand], output: Labels, sizes: Mapping[Label, int]
) -> tuple[int, int]:
    """Return the indices of the pair whose product grows least beyond its two factors."""
    uses = Counter(output)
    for operand in operands:
        uses.update(operand.labels)

    def growth(pair: tuple[int, int]) -> int:
        a, b = (set(operands[i].labels) for i in pair)
        product = (label for label in a | b if uses[label] > (label in a) + (label in b))
        return _size(product, sizes) - _size(a, sizes) - _size(b, sizes)

    return min(combinations(range(min(len(operands), MOST_COMPARED)), 2), key=growth)


def _size(labels: Iterable[Label], sizes: Mapping[Label, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _product(
    xp: Backend, a: _Operand, b: _Operand, needed: set[Label], sizes: Mapping[Label, int]
) -> _Operand:
    """Multiply two operands: shared labels are batch axes if needed, and summed over if not."""
    shared = [label for label in a.labels if label in b.labels]
    batch = tuple(label for label in shared if label in needed)
    summed = tuple(label for label in shared if label not in needed)
    rows = tuple(label for label in a.labels if label not in shared)
    columns = tuple(label for label in b.labels if label not in shared)
    labels = (*batch, *rows, *columns)
    shape = tuple(sizes[label] for label in labels)
    xp.allow(shape, xp.numpy_dtype(a.array.dtype))
    blocks, inner = [_size(part, sizes) for part in (batch, rows, columns)], _size(summed, sizes)
    x = xp.reshape(_in_order(xp, a, (*batch, *rows, *summed)), (*blocks[:2], inner))
    y = xp.reshape(_in_order(xp, b, (*batch, *summed, *columns)), (blocks[0], inner, blocks[2]))
    return _Operand(xp.reshape(xp.matmul(x, y) if summed else x * y, shape), labels)
