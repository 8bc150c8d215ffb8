"""Tables of text and numbers, which end with a note where there is more than they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.display.markup import Html, element, escaped, muted
from sardonyx.display.units import more_text

MOST_ROWS = 100
# Maximum characters of the markup of one table.
LONGEST_TABLE = 40_000


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    total: int | None = None,
    numbers: Sequence[int] = (),
    most: int = MOST_ROWS,
    longest: int = LONGEST_TABLE,
) -> Html:
    """Return a table with a row of titles.

    `rows` may be an iterator: no more rows are taken from it than are shown. `total` is the number
    of all rows, if `rows` has no length. `numbers` are the columns that are aligned to the right.

    >>> table(["name", "bytes"], [("a<b", 12)], numbers=[1]).count("a&lt;b")
    1
    """
    if total is None:
        rows = list(rows)
        total = len(rows)
    shown = _rows(rows, numbers, most, longest)
    head = "".join(_cell("th", title, i in numbers) for i, title in enumerate(titles))
    body = "".join(shown)
    rest = _rest(total - len(shown), len(titles))
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{body}{rest}</tbody></table>")


def facts(pairs: Iterable[tuple[str, object]], *, most: int = MOST_ROWS) -> Html:
    """Return a table of names and values without titles.

    >>> facts([("backend", "jax")]).count("<tr>")
    1
    """
    pairs = list(pairs)
    shown = _rows(pairs, (), most, LONGEST_TABLE)
    rest = _rest(len(pairs) - len(shown), 2)
    return Html(f'<table class="sx-facts"><tbody>{"".join(shown)}{rest}</tbody></table>')


def _rows(
    rows: Iterable[Sequence[object]], numbers: Sequence[int], most: int, longest: int
) -> list[str]:
    shown: list[str] = []
    length = 0
    if most == 0:
        return shown
    for row in rows:
        cells = "".join(_cell("td", value, i in numbers) for i, value in enumerate(row))
        length += len(cells)
        if length > longest:
            break
        shown.append(f"<tr>{cells}</tr>")
        if len(shown) == most:
            break
    return shown


def _cell(tag: str, value: object, is_number: bool) -> str:
    opening = f'<{tag} class="sx-number">' if is_number else f"<{tag}>"
    return f"{opening}{escaped(value)}</{tag}>"


def _rest(count: int, columns: int) -> str:
    if count <= 0:
        return ""
    return f'<tr><td colspan="{columns}">{element("span", muted(more_text(count)))}</td></tr>'
