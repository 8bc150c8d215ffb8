"""Bars: one beside each row of a table, or several parts in one bar."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.display.markup import Html, element, joined
from sardonyx.display.style import COLOURS


def bar(share: float) -> Html:
    """Return a bar for a cell of a table; `share` is its length, from 0 to 1.

    >>> bar(0.5).count("width:50.0%")
    1
    """
    return Html(
        f'<div class="sx-track"><div class="sx-bar" style="width:{_percent(share)}"></div></div>'
    )


def stacked(parts: Sequence[tuple[str, float]]) -> Html:
    """Return one bar that is divided into named parts, in the order of `key`'s colours.

    >>> stacked([("weights", 3), ("inputs", 1)]).count("width:75.0%")
    1
    """
    total = sum(size for _, size in parts) or 1
    pieces = (
        element("div", title=name, style=f"width:{_percent(size / total)};background:{_colour(i)}")
        for i, (name, size) in enumerate(parts)
    )
    return element("div", joined(pieces), cls="sx-stack")


def key(index: int, name: str) -> Html:
    """Return the name of a part of `stacked` after a square of its colour."""
    square = element("span", cls="sx-key", style=f"background:{_colour(index)}")
    return joined([square, name])


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _percent(share: float) -> str:
    known = 0.0 if math.isnan(share) else share
    return f"{100 * min(max(known, 0.0), 1.0):.1f}%"
