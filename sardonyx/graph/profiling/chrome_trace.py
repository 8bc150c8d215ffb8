"""A profile in the format of Chrome's traces, which Perfetto reads too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from sardonyx.graph.profiling.measurements import Measurements

_PROCESS, _SEGMENTS, _NODES = 1, 1, 2


def trace_of(profile: Measurements) -> dict[str, Any]:
    """Return the trace of one call; all times in it are microseconds."""
    return {
        "traceEvents": [*_titles(profile), *_events(profile)],
        "displayTimeUnit": "ms",
        "otherData": {
            "title": profile.title,
            "method": profile.method,
            "tier": profile.tier,
            "total": profile.total,
            "remainder": profile.remainder,
        },
    }


def _titles(profile: Measurements) -> Iterator[dict[str, Any]]:
    yield _title("process_name", 0, profile.title)
    yield _title("thread_name", _SEGMENTS, "segments")
    yield _title("thread_name", _NODES, "nodes")


def _title(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _events(profile: Measurements) -> Iterator[dict[str, Any]]:
    rest, now = dict(profile.rest), 0.0
    before = rest.pop("arguments in", 0.0)
    yield _event("arguments in", "rest", _SEGMENTS, now, before, {})
    now += before
    for segment in profile.segments:
        name = f"segment {segment.number} ({segment.tier})"
        yield _event(name, "segment", _SEGMENTS, now, segment.seconds, asdict(segment))
        begin = now
        for node in profile.nodes:
            if node.segment == segment.number:
                yield _event(node.name, node.operator, _NODES, begin, node.seconds, asdict(node))
                begin += node.seconds
        now += segment.seconds
    for name, seconds in rest.items():
        yield _event(name, "rest", _SEGMENTS, now, seconds, {})
        now += seconds


def _event(
    name: str, category: str, thread: int, begin: float, seconds: float, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name or "node",
        "cat": category,
        "pid": _PROCESS,
        "tid": thread,
        "ts": begin * 1e6,
        "dur": seconds * 1e6,
        "args": facts,
    }
