"""Whether the outputs of several runs agree, and by how much they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from sardonyx.cli.summaries import LONGEST_LABEL
from sardonyx.cli.tables import grid
from sardonyx.comparing.differences import TOLERANCES, Difference, difference
from sardonyx.printable import printable


@dataclass(frozen=True)
class Agreement:
    """One output in two runs."""

    output: str
    sides: tuple[str, str]
    difference: Difference

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        facts = asdict(self.difference)
        del facts["histogram"]
        agrees = not self.difference.parts
        return {"output": self.output, "sides": self.sides, "agrees": agrees, **facts}


def agreements(
    reference: tuple[str, Mapping[str, Any]],
    others: Sequence[tuple[str, Mapping[str, Any]]],
    tolerance: float | None,
) -> list[Agreement]:
    """Return how the outputs of each other run differ from those of the reference.

    >>> import numpy as np
    >>> (one,) = agreements(("a", {"y": np.ones(2)}), [("b", {"y": np.ones(2)})], None)
    >>> one.difference.parts
    False
    """
    tolerances = dict(TOLERANCES) if tolerance is None else _Same(tolerance)
    title, expected = reference
    return [
        Agreement(name, (title, other), difference(expected[name], values[name], tolerances))
        for other, values in others
        for name in expected
        if name in values
    ]


class _Same(dict[str, float]):
    """One tolerance for all dtypes."""

    def __init__(self, tolerance: float) -> None:
        super().__init__()
        self.tolerance = tolerance

    def get(self, key: str, default: Any = None) -> float:
        return self.tolerance


def agreement_table(compared: Sequence[Agreement]) -> Table:
    """Return the differences as a table."""
    header = ("output", "compared with", "error", "absolute", "tolerance", "")
    rows = [
        (
            printable(each.output, LONGEST_LABEL),
            each.sides[1],
            f"{each.difference.error:.2g}",
            f"{each.difference.max_abs:.2g}",
            f"{each.difference.tolerance:.0e}",
            _verdict(each.difference),
        )
        for each in compared
    ]
    return grid([header, *rows], "cyan", "none", "number", "number", "number", "none")


def _verdict(difference: Difference) -> str:
    return f"differs: {difference.finding}".rstrip(": ") if difference.parts else "agrees"
