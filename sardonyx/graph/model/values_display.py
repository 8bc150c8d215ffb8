"""Declared inputs and outputs as text and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.display.markup import Html, code
from sardonyx.display.tables import table
from sardonyx.display.units import more_text
from sardonyx.graph.ir import ValueInfo

# Maximum characters of a model's text, and values that it names.
MOST_CHARACTERS = 1600
_MOST_NAMED = 8
_MOST_ROWS = 40


def values_text(infos: Sequence[ValueInfo]) -> str:
    """Return the first values with their types and shapes, and the number of the others."""
    rest = [more_text(len(infos) - _MOST_NAMED)] if len(infos) > _MOST_NAMED else []
    return ", ".join([*map(str, infos[:_MOST_NAMED]), *rest])


def values_table(inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo]) -> Html:
    """Return a table of inputs and outputs."""
    titles = ("", "name", "type", "shape")
    both = (("input", inputs), ("output", outputs))
    if max(len(inputs), len(outputs)) <= _MOST_ROWS:
        return table(titles, [row for kind, infos in both for row in _rows(kind, infos)])
    halves = [table(titles, _rows(k, i), total=len(i), most=_MOST_ROWS) for k, i in both]
    return Html("".join(halves))


def _rows(kind: str, infos: Sequence[ValueInfo]) -> Iterator[tuple[object, ...]]:
    for info in infos:
        shape = "" if info.shape is None else str(list(info.shape)).replace("'", "")
        yield kind, code(info.name), info.type or "", shape
