"""The trace of a profiled session, in Chrome's format and with onnxruntime's names."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sardonyx.graph.model.model import Model
from sardonyx.graph.profiling.chrome_trace import trace_of
from sardonyx.graph.profiling.profile import Profile
from sardonyx.printable import printable
from sardonyx.profiling import profile

# Calls that are measured when profiling ends.
CALLS = 5
# Maximum number of events of one session.
MOST_EVENTS = 1_000_000


class Profiler:
    """Notes what a session does, and writes it into a file.

    The times of nodes are those of `Model.profile`, for the inputs of the last call. They are
    measured when profiling ends, because compiled programs do not run node by node.
    """

    def __init__(self, prefix: str, provider: str) -> None:
        self._prefix = prefix
        self._provider = provider
        self.start_ns = time.time_ns()
        self._origin = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        self._last: Mapping[str, Any] | None = None
        self._is_over = False

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note how long something takes."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            taken = time.perf_counter_ns() - start
            if not self._is_over and len(self._events) < MOST_EVENTS:
                begin = (start - self._origin) / 1e3
                self._events.append(_event("Session", name, begin, taken / 1e3, {}))

    def note_feeds(self, feeds: Mapping[str, Any]) -> None:
        """Note the inputs of a call."""
        self._last = feeds

    def end(self, model: Model) -> str:
        """Write the file and return its name; an empty one if that was done before."""
        if self._is_over:
            return ""
        self._is_over = True
        now = datetime.now()
        name = f"{self._prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        events = [*self._events, *self._of_nodes(model)]
        with open(name, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
        self._last = None
        return name

    def _of_nodes(self, model: Model) -> Iterator[dict[str, Any]]:
        if self._last is None:
            return
        measured = profile(model, self._last, calls=CALLS)
        begin = (time.perf_counter_ns() - self._origin) / 1e3
        yield from _node_events(measured, begin, self._provider)


def _node_events(measured: Profile, begin: float, provider: str) -> Iterator[dict[str, Any]]:
    """Yield the events of one measured call, from the package's own trace of it."""
    for event in trace_of(measured)["traceEvents"]:
        if event["ph"] != "X":
            continue
        arguments, start, taken = event.get("args", {}), begin + event["ts"], event["dur"]
        if "operator" not in arguments:
            title = f"{event['name']} of a measured call"
            yield _event("Session", title, start, taken, dict(arguments))
            continue
        facts = {"op_name": arguments["operator"], "provider": provider, **arguments}
        yield _event("Node", f"{event['name']}_kernel_time", start, taken, facts)


def _event(category: str, name: str, begin: float, taken: float, facts: Any) -> dict[str, Any]:
    return {
        "cat": category,
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "dur": round(taken),
        "ts": round(begin),
        "ph": "X",
        "name": printable(name),
        "args": facts,
    }
