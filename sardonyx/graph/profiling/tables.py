"""A profile as text of one screen."""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx.display.units import bytes_text, duration, more_text, short
from sardonyx.graph.profiling.measurements import Measurements
from sardonyx.printable import printable

# The row of what the others leave of the call.
REMAINDER = "remainder: call less the above"

_MOST_NODES, _MOST_SEGMENTS, _WIDTH = 15, 8, 44


def line_of(profile: Measurements) -> str:
    """Return a profile in one line."""
    count = len(profile.nodes)
    return printable(f"<profile of {profile.title}: {duration(profile.total)}, {count} nodes>")


def text_of(profile: Measurements) -> str:
    """Return the segments, the rest, and the slowest nodes."""
    return "\n".join(printable(line) for line in _lines(profile))


def _lines(profile: Measurements) -> Iterator[str]:
    yield profile.title
    yield (
        f"{duration(profile.total)} per call (fastest of {profile.calls}), of which "
        f"{duration(profile.accounted)} are accounted for; {profile.tier}; {profile.method}"
    )
    yield scaling_text(profile)
    yield ""
    for segment in profile.segments[:_MOST_SEGMENTS]:
        name = f"segment {segment.number}, {segment.tier}, {segment.steps} steps"
        yield _row(profile, name, "", segment.seconds, segment.bytes, segment.operations)
    yield from _more(len(profile.segments) - _MOST_SEGMENTS, "segments")
    for name, seconds in profile.rest.items():
        yield _rest(profile, name, seconds)
    yield _rest(profile, REMAINDER, profile.remainder)
    yield ""
    titles = f"{'time':>11}{'':>7}{'bytes':>10}{'operations':>12}"
    yield f"{'node':<{_WIDTH}}{'operator':<22}{titles}"
    for node in sorted(profile.nodes, key=lambda n: -n.seconds)[:_MOST_NODES]:
        yield _row(profile, node.name, node.operator, node.seconds, node.bytes, node.operations)
    yield from _more(len(profile.nodes) - _MOST_NODES, "nodes")


def scaling_text(profile: Measurements) -> str:
    """Return by which factors the times of nodes were scaled, in a sentence."""
    least, most = profile.scales
    factors = f"{least:.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f}"
    return f"times of nodes are scaled to the segment, by {factors}"


def _rest(profile: Measurements, name: str, seconds: float) -> str:
    return f"{name:<{_WIDTH}}{'':<22}{signed(seconds):>11}{_share(profile, seconds)}"


def signed(seconds: float) -> str:
    """Return a duration that may be negative."""
    return f"-{duration(-seconds)}" if seconds < 0 else duration(seconds)


def _row(
    profile: Measurements, name: str, operator: str, seconds: float, size: int, operations: int
) -> str:
    numbers = f"{bytes_text(size):>10}{short(operations):>12}"
    words = f"{_cut(name, _WIDTH - 2):<{_WIDTH}}{_cut(operator, 20):<22}"
    return f"{words}{duration(seconds):>11}{_share(profile, seconds)}{numbers}"


def _share(profile: Measurements, seconds: float) -> str:
    return f"{100 * seconds / profile.total if profile.total else 0:6.1f}%"


def _cut(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _more(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"{more_text(count)} {noun}"
