"""Places in arrays as C expressions: digits of a mixed-radix number, one or more per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from sardonyx.backends.standard import Shape

# An expression, and how many values it takes. Digits of size 1 are left out, as they are zero.
Digit: TypeAlias = tuple[str, int]
Digits: TypeAlias = tuple[Digit, ...]


class IndexNames(Protocol):
    """Names the results of index expressions, the same one for equal expressions."""

    def index(self, text: str) -> str: ...


def digits_of(digits: Digits, sizes: Sequence[int], names: IndexNames) -> list[str]:
    """Return one expression for each size, whose product is that of the digits.

    >>> class Plain:
    ...     def index(self, text: str) -> str:
    ...         return text if text.isidentifier() else f"({text})"
    >>> digits_of((("row", 6), ("c", 4)), (2, 3, 4), Plain())
    ['(row / 3)', '(row % 3)', 'c']
    """
    rest = [digit for digit in digits if digit[1] != 1]
    found: list[str] = []
    axes = [size for size in sizes if size != 1]
    while axes:
        taken, block = [rest.pop()], [axes.pop()]
        while (have := _size(taken)) != (wanted := math.prod(block)):
            if have < wanted:
                taken.append(rest.pop())
            else:
                block.append(axes.pop())
        found += reversed(_unravelled(_ravelled(taken[::-1], names), block[::-1], names))
    return [found.pop() if size != 1 else "0" for size in sizes]


def place_of(digits: Digits, names: IndexNames) -> str:
    """Return the row-major position of the element."""
    return _ravelled([digit for digit in digits if digit[1] != 1], names)


def as_digits(expressions: Sequence[str], shape: Shape) -> Digits:
    return tuple([d for d in zip(expressions, shape, strict=True) if d[1] != 1])


def broadcast_digits(digits: Digits, shape: Shape, result: Shape, names: IndexNames) -> Digits:
    """Return the digits in an array of `shape` that is broadcast to `result`.

    Neighbouring axes stay together, so that rows and columns are not taken apart in vain.

    >>> class Plain:
    ...     def index(self, text: str) -> str:
    ...         return text
    >>> broadcast_digits((("row", 6), ("c", 4)), (2, 3, 1), (2, 3, 4), Plain())
    (('row', 6),)
    """
    if shape == result:
        return digits
    full = (1,) * (len(result) - len(shape)) + tuple(shape)
    groups: list[tuple[bool, int]] = []
    for size, wanted in zip(full, result, strict=True):
        is_own = size == wanted
        if wanted == 1:
            continue
        if groups and groups[-1][0] == is_own:
            groups[-1] = is_own, groups[-1][1] * wanted
        else:
            groups.append((is_own, wanted))
    sizes = [size for _, size in groups]
    found = digits_of(digits, sizes, names)
    return tuple([(e, size) for e, (is_own, size) in zip(found, groups, strict=True) if is_own])


def _size(digits: Sequence[Digit]) -> int:
    return math.prod(size for _, size in digits)


def _ravelled(digits: Sequence[Digit], names: IndexNames) -> str:
    if not digits:
        return "0"
    terms, step = [], 1
    for expression, size in reversed(digits):
        terms.append(expression if step == 1 else f"{expression} * {step}")
        step *= size
    terms = [term for term in terms if not term.startswith("0 *") and term != "0"]
    if len(terms) < 2:
        return names.index(terms[0]) if terms else "0"
    return names.index(" + ".join(reversed(terms)))


def _unravelled(place: str, sizes: Sequence[int], names: IndexNames) -> list[str]:
    if len(sizes) == 1:
        return [place]
    found, step = [], 1
    for i, size in reversed(list(enumerate(sizes))):
        quotient = place if step == 1 else f"{place} / {step}"
        found.append(names.index(quotient if i == 0 else f"{quotient} % {size}"))
        step *= size
    return found[::-1]
