"""Parts that fold: a summary that is always seen, and content that a click shows."""

from __future__ import annotations

from sardonyx.display.markup import Html, escaped, joined, muted


def fold(summary: object, *content: object, note: object = "", opened: bool = False) -> Html:
    """Return content that is folded under a summary; `note` follows it in a paler colour.

    >>> fold("weights", "w: float32[3]", note="12 B").count("<details>")
    1
    """
    opening = "<details open>" if opened else "<details>"
    note = joined([" ", muted(note)]) if note else ""
    inner = "".join(map(escaped, content))
    return Html(f"{opening}<summary>{escaped(summary)}{note}</summary>{inner}</details>")
