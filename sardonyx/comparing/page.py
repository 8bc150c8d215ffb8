"""A comparison as HTML: its text, the errors along the graph, and a histogram per value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from sardonyx.comparing.differences import DECADES, Difference
from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, displayed, element
from sardonyx.printable import printable

WIDTH, HEIGHT = 720, 160
# The range of errors that is drawn, in powers of ten.
LOWEST, HIGHEST = -12.0, 2.0
# Maximum values in the table of a page.
MOST_ROWS = 60

Rows = Sequence[tuple[str, str, Difference]]


def comparison_html(text: str, rows: Rows) -> str:
    """Return a comparison as a fragment of HTML."""
    worst = sorted(rows, key=lambda row: (row[2].parts, row[2].error), reverse=True)[:MOST_ROWS]
    chosen = {row[0] for row in worst}
    details = [_value(*row) for row in rows if row[0] in chosen]
    title = f"{len(chosen):,} values" + (f" of {len(rows):,}" if len(rows) > len(chosen) else "")
    first, *others = text.splitlines()
    lines = [element("div", line) for line in others]
    return displayed(first, *lines, Html(_errors(rows)), fold(title, *details))


def _errors(rows: Rows) -> str:
    """Draw the error of each value along the depth of the graph, on a log scale."""
    dots = []
    for i, (name, operator, found) in enumerate(rows):
        x = 40 + (WIDTH - 50) * i / max(1, len(rows) - 1)
        color = "#d33" if found.parts else "#38c"
        label = escape(printable(f"{name} ({operator}): {found.error:.2g} {found.finding}"))
        dots.append(
            f'<circle cx="{x:.1f}" cy="{_height(found.error):.1f}" r="2.5" fill="{color}">'
            f"<title>{label}</title></circle>"
        )
    lines = "".join(
        f'<line x1="40" x2="{WIDTH}" y1="{_height(10.0**p):.1f}" y2="{_height(10.0**p):.1f}" '
        f'stroke="currentColor" stroke-opacity="0.2"/>'
        f'<text x="2" y="{_height(10.0**p) + 4:.1f}" font-size="11" '
        f'fill="currentColor">1e{p}</text>'
        for p in range(int(LOWEST), int(HIGHEST) + 1, 4)
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{lines}{"".join(dots)}</svg>'


def _height(error: float) -> float:
    power = HIGHEST if not math.isfinite(error) else math.log10(max(error, 10.0**LOWEST))
    share = (min(max(power, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return 10 + (HEIGHT - 20) * (1 - share)


def _value(name: str, operator: str, found: Difference) -> Html:
    mark = " ✗" if found.parts else ""
    text = f"{name} ({operator}) {found.dtype}{list(found.shape)}: {found.error:.2g}{mark}"
    numbers = (
        f"absolute {found.max_abs:.3g}, relative {found.max_rel:.3g}, {found.ulps:.3g} ulp, "
        f"cosine {found.cosine:.6f} {found.finding}"
    )
    return fold(text, element("p", numbers), Html(_bars(found.histogram)))


def _bars(counts: Sequence[int]) -> str:
    """Draw how many elements have an error of each decade."""
    if not sum(counts):
        return ""
    labels = [f"<1e{DECADES[0]}", *(f"1e{power}" for power in DECADES)]
    most = math.log1p(max(counts))
    parts = []
    for i, (count, label) in enumerate(zip(counts, labels, strict=True)):
        height = 60 * math.log1p(count) / most
        parts.append(
            f'<rect x="{i * 40 + 4}" y="{64 - height:.1f}" width="32" height="{height:.1f}" '
            f'fill="#38c"><title>{count:,}</title></rect>'
            f'<text x="{i * 40 + 4}" y="78" font-size="10" fill="currentColor">'
            f"{escape(label)}</text>"
        )
    width = 40 * len(counts)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 82" width="{width}" '
    return f'{svg}height="82">{"".join(parts)}</svg>'
