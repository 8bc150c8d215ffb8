"""`Comparison`: how far two computations of one graph agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sardonyx.comparing.differences import Difference
from sardonyx.comparing.page import comparison_html
from sardonyx.printable import printable

# By which factor an error grows at a node that is not only passing rounding on.
BORN = 16.0
# Maximum rows and inputs that a text shows.
MOST_SHOWN = 8


@dataclass(frozen=True)
class Row:
    """The differences of one value, and of what its node reads."""

    name: str
    node: str
    operator: str
    difference: Difference
    inputs: Mapping[str, Difference]

    @property
    def parts(self) -> bool:
        """Whether the two sides differ by more than the tolerance."""
        return self.difference.parts

    @property
    def is_born_here(self) -> bool:
        """Whether the node's inputs agree, or nearly, so that its own work is what differs."""
        before = max((each.error for each in self.inputs.values()), default=0.0)
        agree = not any(each.parts for each in self.inputs.values())
        return self.parts and agree and not self.difference.error < BORN * before

    def __str__(self) -> str:
        d = self.difference
        label = f"node '{self.node}'" if self.node else "a node without a name"
        text = f"'{self.name}' of {label} ({self.operator}), {d.dtype}{list(d.shape)}: "
        text += d.finding or f"error {d.error:.2g} of its largest element"
        text += f" (absolute {d.max_abs:.2g}, {d.ulps:.2g} ulp; tolerance {d.tolerance:.0e})"
        return printable(text, 400)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The values of two computations of a graph, in the order of the graph.

    `sardonyx.compare` returns it. `rows` has the differences by value, and `first` the first value
    that differs by more than the tolerance. `left_out` says of values why they were not compared.
    """

    a: str
    b: str
    rows: tuple[Row, ...]
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def first(self) -> Row | None:
        """The first value in the order of the graph that parts; None if all agree."""
        return next((row for row in self.rows if row.parts), None)

    @property
    def agrees(self) -> bool:
        """Whether all values that both sides have agree."""
        return self.first is None

    def __getitem__(self, name: str) -> Row:
        """Return the row of a value."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(printable(f"no value '{name}' was compared"))

    @property
    def table(self) -> list[dict[str, object]]:
        """One dict per value, as `pandas.DataFrame` takes them."""
        return [
            {
                "value": row.name,
                "node": row.node,
                "operator": row.operator,
                "dtype": row.difference.dtype,
                "shape": row.difference.shape,
                "error": row.difference.error,
                "max_abs": row.difference.max_abs,
                "max_rel": row.difference.max_rel,
                "ulps": row.difference.ulps,
                "cosine": row.difference.cosine,
                "parts": row.parts,
                "finding": row.difference.finding,
            }
            for row in self.rows
        ]

    def __repr__(self) -> str:
        lines = [f"{self.a} and {self.b}: {len(self.rows):,} values compared"]
        first = self.first
        if first is None:
            worst = max((row.difference.error for row in self.rows), default=0.0)
            lines.append(f"All agree; the largest error is {worst:.2g} of a largest element.")
        else:
            parting = sum(row.parts for row in self.rows)
            lines += [f"{parting:,} part; the first is {first}", *_inputs_of(first)]
        for title, names in ((self.a, self.only_in_a), (self.b, self.only_in_b)):
            if names:
                shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if names[MOST_SHOWN:] else "")
                lines.append(printable(f"{len(names):,} values only on {title}: {shown}", 400))
        for name, reason in list(self.left_out.items())[:MOST_SHOWN]:
            lines.append(printable(f"'{name}' is left out: {reason}", 400))
        if len(self.left_out) > MOST_SHOWN:
            lines.append(f"{len(self.left_out) - MOST_SHOWN:,} more values are left out")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [(row.name, row.operator, row.difference) for row in self.rows]
        return comparison_html(repr(self), rows)


def _inputs_of(row: Row) -> list[str]:
    lines = [
        printable(f"  input '{name}': {each.finding or f'error {each.error:.2g}'}", 200)
        for name, each in list(row.inputs.items())[:MOST_SHOWN]
    ]
    if row.is_born_here:
        return [*lines, "  Its inputs agree: the error is born here."]
    if any(each.parts for each in row.inputs.values()):
        return [*lines, "  An input of it differs already."]
    return [*lines, "  Its inputs differ nearly as much: rounding that grew."]
