"""What `--shape` says: the shapes of one call, or of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click

Sizes = tuple[int, ...]
Shapes = dict[str, Sizes]

# The name of an input can have any character but "=", and the sizes follow the last one.
_SHAPE = re.compile(r"(?P<name>.+)=(?P<sizes>(?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII | re.DOTALL)
_NEGATIVE = re.compile(r"(?:^|,)\s*[-+]")
_SIGNATURE = re.compile(r"(?P<name>.+)=(?P<sizes>[^=,]*(?:,[^=,]+)*)", re.DOTALL)


def calls_of(groups: Iterable[Sequence[str]]) -> list[Shapes]:
    """Return the shapes of each call: an input that comes again begins another one.

    >>> calls_of([["x=1,3"], ["mask=3"], ["x=8,3", "mask=3"]])
    [{'x': (1, 3), 'mask': (3,)}, {'x': (8, 3), 'mask': (3,)}]
    """
    calls: list[Shapes] = []
    for group in groups:
        for name, sizes in map(parsed_shape, group):
            if not calls or name in calls[-1]:
                calls.append({})
            calls[-1][name] = sizes
    return calls


def call_of(groups: Iterable[Sequence[str]]) -> Shapes:
    """Return the shapes of one call; two shapes for an input are wrong usage.

    >>> call_of([["x=1,3", "mask="]])
    {'x': (1, 3), 'mask': ()}
    """
    calls = calls_of(groups)
    if len(calls) > 1:
        name = next(iter(calls[1]))
        raise click.UsageError(f"The input '{name}' has two shapes: pass one --shape for it.")
    return calls[0] if calls else {}


def parsed_shape(text: str) -> tuple[str, Sizes]:
    """Return the input and the shape of "x=1,3,224,224"; a number has the shape of "x=".

    >>> parsed_shape("x=1,3")
    ('x', (1, 3))
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"The shape {text!r} is not INPUT=SIZES: write it as in --shape x=1,3,224,224."
        )
    sizes = match["sizes"]
    return match["name"], tuple(map(int, sizes.split(","))) if sizes else ()


def free_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Return the input and the shape of "x=batch,3", whose sizes may be names.

    >>> free_shape("x=batch,3")
    ('x', ('batch', 3))
    """
    match = _SIGNATURE.fullmatch(text)
    if match is None or _NEGATIVE.search(match["sizes"]):
        raise click.UsageError(
            f"The shape {text!r} is not INPUT=SIZES: write it as in --shape x=batch,3,224,224."
        )
    sizes = match["sizes"].split(",") if match["sizes"] else []
    return match["name"], tuple(int(s) if _is_number(s) else s.strip() for s in sizes)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
