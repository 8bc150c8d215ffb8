"""Markup: all text is escaped, except what this package wrote as markup itself."""

from __future__ import annotations

import html
from collections.abc import Iterable

from sardonyx.display.style import STYLE
from sardonyx.printable import LONGEST_NAME, printable

# Maximum characters of what one object shows in a notebook, the style sheet included.
LONGEST_DISPLAY = 180_000


class Html(str):
    """Markup. Builders insert it as it is; other text they escape."""

    __slots__ = ()


def escaped(text: object, longest: int = LONGEST_NAME) -> Html:
    """Return text as markup that shows it; markup is returned unchanged.

    >>> escaped("a<b>")
    'a&lt;b&gt;'
    >>> escaped(escaped("a<b>"))
    'a&lt;b&gt;'
    """
    if isinstance(text, Html):
        return text
    return Html(html.escape(printable(str(text), longest)))


def element(tag: str, *content: object, **attributes: str) -> Html:
    """Return an element; `cls` is its class, and `_` in names of attributes stands for `-`.

    >>> element("span", "1 < 2", cls="note")
    '<span class="note">1 &lt; 2</span>'
    """
    names = {"cls": "class"}
    written = "".join(
        f' {names.get(name, name.replace("_", "-"))}="{html.escape(value)}"'
        for name, value in attributes.items()
    )
    return Html(f"<{tag}{written}>{''.join(map(escaped, content))}</{tag}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return the parts as one piece of markup."""
    return Html(escaped(between).join(map(escaped, parts)))


def muted(text: object) -> Html:
    """Return text in a paler colour."""
    return element("span", text, cls="sx-muted")


def code(text: object) -> Html:
    """Return text in the font of code."""
    return element("code", text)


_TOO_LONG = element("p", "… this part is too long to be shown", cls="sx-muted")


def displayed(title: object, *parts: object, picture: Html | None = None) -> str:
    """Return what `_repr_html_` returns: a title and parts, in a box with a style sheet.

    Parts that would make it longer than `LONGEST_DISPLAY` are left out, and a note says so. A
    `picture` follows the title, and bounds its length itself.

    >>> text = displayed("a model", "an input")
    >>> text.startswith("<div class=\\"sardonyx\\">"), "a model" in text
    (True, True)
    """
    pieces = [f"<style>{STYLE}</style>", element("div", title, cls="sx-title")]
    length = sum(map(len, pieces))
    pieces += [] if picture is None else [picture]
    for part in map(escaped, parts):
        fits = length + len(part) <= LONGEST_DISPLAY
        pieces.append(part if fits else _TOO_LONG)
        length += len(pieces[-1])
    return f'<div class="sardonyx">{"".join(pieces)}</div>'
