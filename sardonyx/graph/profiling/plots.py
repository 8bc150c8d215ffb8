"""A profile as a page with bars for notebooks, and as a plot of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from sardonyx.display.bars import bar
from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, displayed, element, joined, muted
from sardonyx.display.tables import table
from sardonyx.display.units import bytes_text, duration, short
from sardonyx.errors import SardonyxError
from sardonyx.graph.profiling.measurements import Measurements
from sardonyx.graph.profiling.tables import REMAINDER, scaling_text, signed

_MOST_BARS, _MOST_ROWS = 15, 50


def page_of(profile: Measurements) -> str:
    """Return bars of the slowest nodes, and tables that unfold."""
    facts = (profile.tier, profile.method, f"fastest of {profile.calls} calls")
    about = "; ".join([*facts, scaling_text(profile)])
    return displayed(
        joined([code(profile.title), f": {duration(profile.total)} per call"]),
        element("p", muted(about)),
        _groups(profile, "name", _MOST_BARS),
        fold("segments and the rest", _segments(profile)),
        fold("operators", _groups(profile, "operator", _MOST_ROWS)),
        fold("scopes", _groups(profile, "scope", _MOST_ROWS)),
        fold("nodes", _groups(profile, "name", _MOST_ROWS)),
    )


def _groups(profile: Measurements, kind: str, most: int) -> Html:
    """Return the sums of nodes as a table, with a bar for the time of each."""
    groups = profile.by(kind)
    longest = max((group.seconds for group in groups), default=0.0) or 1.0
    rows = (
        (
            code(group.name or "(none)"),
            group.nodes,
            duration(group.seconds),
            bar(group.seconds / longest),
            bytes_text(group.bytes),
            short(group.operations),
        )
        for group in groups
    )
    titles = (kind, "nodes", "time", "", "bytes", "operations")
    return table(titles, rows, total=len(groups), numbers=[1, 2, 4, 5], most=most)


def _segments(profile: Measurements) -> Html:
    titles = ("segment", "time", "of it in no node", "bytes", "operations")
    times = {**profile.rest, REMAINDER: profile.remainder}
    rest = [(name, signed(seconds), "", "", "") for name, seconds in times.items()]
    return table(titles, [*_segment_rows(profile), *rest], numbers=[1, 2, 3, 4])


def _segment_rows(profile: Measurements) -> Iterator[tuple[str, ...]]:
    for s in profile.segments:
        times = duration(s.seconds), duration(s.overhead)
        name = f"{s.number} ({s.tier}, {s.steps} steps)"
        yield name, *times, bytes_text(s.bytes), short(s.operations)


def axes_of(profile: Measurements, most: int) -> Any:
    """Return the slowest nodes as bars on axes of matplotlib."""
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        raise SardonyxError(
            "The plot needs matplotlib: pip install matplotlib. Without it a notebook shows the "
            "profile itself, with bars."
        ) from None
    groups = profile.by("name")[:most][::-1]
    size = (8, 1.2 + 0.25 * len(groups))
    _, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.barh([group.name for group in groups], [group.seconds * 1e3 for group in groups])
    axes.set_xlabel("milliseconds")
    axes.set_title(f"{profile.title}: {duration(profile.total)}")
    return axes
