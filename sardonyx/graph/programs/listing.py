"""Programs as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, displayed, element, joined, muted
from sardonyx.display.units import counted, more_text
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.printable import printable

# Maximum steps of a segment in `print(program)`.
MOST_STEPS = 60
_LONGEST_LINE = 2000
_MOST_NAMES = 8
# Maximum entries of a kind, and segments, in a notebook; characters of all segments there.
_MOST_ENTRIES = 40
_MOST_SEGMENTS = 25
_LONGEST_SEGMENTS = 110_000

Summary = Sequence[tuple[str, Sequence[str]]]


# -- as text --------------------------------------------------------------------------------------


def listing(
    title: str, backend: str, summary: Summary, segments: Sequence[Segment], most: int
) -> str:
    """Return the text of a program, with at most `most` steps of each segment."""
    lines = [title, "", *(_line(*kind) for kind in summary if kind[1] or kind[0] != "host")]
    for i, segment in enumerate(segments):
        where = "host" if segment.host else backend
        lines += ["", f"segment {i} on {where}: {counted(len(segment.steps), 'step')}"]
        lines += _steps(segment, most)
    return "\n".join(printable(line, _LONGEST_LINE) for line in lines)


def _line(title: str, entries: Sequence[str]) -> str:
    more = f", {more_text(len(entries) - _MOST_NAMES)}" if len(entries) > _MOST_NAMES else ""
    return f"{title:<10}{len(entries):>4}  {', '.join(entries[:_MOST_NAMES])}{more}".rstrip()


def _steps(segment: Segment, most: int) -> Iterator[str]:
    for step in islice(segment.steps, most):
        yield from _step(step, segment.names, "  ")
    if len(segment.steps) > most:
        yield f"  {more_text(len(segment.steps) - most)} steps"


def _step(step: Step, names: Mapping[int, str], indent: str) -> Iterator[str]:
    fused = f"  # from {step.origin}" if step.fused else ""
    yield f"{indent}{step.text(names)}{fused}"
    for block in step.blocks:
        yield f"{indent}  block:"
        for inner in block.steps:
            yield from _step(inner, names, indent + "    ")


# -- as HTML --------------------------------------------------------------------------------------


def page(
    title: str,
    backend: str,
    summary: Summary,
    segments: Sequence[Segment],
    notes: Sequence[str],
    picture: Html,
) -> str:
    """Return what a notebook shows of a program; `notes` are the costs of the segments."""
    kinds = [_kind(kind, entries) for kind, entries in summary if entries]
    shown = segments[:_MOST_SEGMENTS]
    longest = _LONGEST_SEGMENTS // max(len(shown), 1)
    folds = [
        fold(
            f"segment {i} on {'host' if segment.host else backend}",
            segment.as_table(longest),
            note=f"{counted(len(segment.steps), 'step')}{note and f'; {note}'}",
            opened=len(segments) == 1 and len(segment.steps) <= 12,
        )
        for i, (segment, note) in enumerate(zip(shown, notes, strict=False))
    ]
    if len(segments) > len(shown):
        folds.append(element("p", muted(f"{more_text(len(segments) - len(shown))} segments")))
    return displayed(joined(["Program ", code(title)]), *kinds, *folds, picture=picture)


def _kind(kind: str, entries: Sequence[str]) -> str:
    lines = [element("div", code(entry), cls="sx-leaf") for entry in entries[:_MOST_ENTRIES]]
    if len(entries) > _MOST_ENTRIES:
        lines.append(element("div", muted(more_text(len(entries) - _MOST_ENTRIES)), cls="sx-leaf"))
    return fold(kind, *lines, note=f"{len(entries):,}")
