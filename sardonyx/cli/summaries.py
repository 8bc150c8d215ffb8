"""Values in a line each: type, smallest, largest, mean, NaN, and the first elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from sardonyx.backends.dtypes import isdtype
from sardonyx.cli.tables import grid
from sardonyx.printable import printable

FIRST = 3
LONGEST_ELEMENT = 12
LONGEST_LABEL = 40


class Summary(NamedTuple):
    """What there is to say of one array; numbers are None where they have no meaning."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    min: float | None
    max: float | None
    mean: float | None
    nan: int
    first: list[Any]


def summaries(values: Mapping[str, Any]) -> Iterator[Summary]:
    """Yield a summary of each array; those of sequences and maps are numbered.

    >>> [s.mean for s in summaries({"y": np.float32([1, 2]), "z": [np.zeros(2), np.ones(2)]})]
    [1.5, 0.0, 1.0]
    """
    for name, value in values.items():
        yield from _of(name, value)


def _of(name: str, value: Any) -> Iterator[Summary]:
    if isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from _of(f"{name}[{i}]", each)
        if not value:
            yield Summary(name, "sequence", (0,), None, None, None, 0, [])
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _of(f"{name}[{key!r}]", each)
    elif value is None:
        yield Summary(name, "absent", (), None, None, None, 0, [])
    else:
        yield _of_array(name, np.asarray(value))


def _of_array(name: str, array: np.ndarray[Any, Any]) -> Summary:
    first = array.ravel()[:FIRST].tolist()
    if array.dtype.kind in "OUST":
        return Summary(name, "string", array.shape, None, None, None, 0, first)
    if not array.size or isdtype(array.dtype, "complex floating"):
        count = int(np.count_nonzero(np.isnan(array))) if array.size else 0
        return Summary(name, array.dtype.name, array.shape, None, None, None, count, first)
    is_float = isdtype(array.dtype, "real floating")
    wide = array.astype(np.float64)
    nan = int(np.count_nonzero(np.isnan(wide))) if is_float else 0
    numbers = wide[~np.isnan(wide)] if nan else wide
    if not numbers.size:
        return Summary(name, array.dtype.name, array.shape, None, None, None, nan, first)
    with np.errstate(all="ignore"):
        least, most, mean = (float(f(numbers)) for f in (np.min, np.max, np.mean))
    return Summary(name, array.dtype.name, array.shape, least, most, mean, nan, first)


def summary_table(rows: Sequence[Summary]) -> Table:
    """Return the summaries as a table."""
    header = ("output", "type", "min", "max", "mean", "NaN", "first elements")
    cells = [
        (
            printable(row.name, LONGEST_LABEL),
            f"{row.dtype}{str(list(row.shape)).replace(' ', '')}",
            _number(row.min),
            _number(row.max),
            _number(row.mean),
            str(row.nan),
            _elements(row),
        )
        for row in rows
    ]
    return grid([header, *cells], "cyan", "none", *["number"] * 4, "dim")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _elements(row: Summary) -> str:
    shown = [
        f"{each:.3g}" if isinstance(each, (float, complex)) else
        printable(str(each), LONGEST_ELEMENT)
        for each in row.first
    ]  # fmt: skip
    return " ".join(shown)
