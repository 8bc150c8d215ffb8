"""The time of each operation of compiled programs, from XLA's own profiler."""

from __future__ import annotations

import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData, ProfileOptions, TraceAnnotation

# JAX has one profiler per process.
_LOCK = Lock()
_PREFIX = "sardonyx "
# JAX's type for its settings does not list them.
_PLATFORMS = "jax_platforms"


class Event(NamedTuple):
    """One operation on one thread of the host, or on one stream of a device."""

    start: float
    end: float
    name: str


class XlaOpTimes:
    """The operations that ran within named contexts."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Event]] = defaultdict(list)
        self._lines: list[list[Event]] = []

    def around(self, label: str) -> AbstractContextManager[object]:
        """Return the context of a run of one program."""
        annotation: AbstractContextManager[object] = TraceAnnotation(_PREFIX + label)
        return annotation

    def of(self, label: str) -> tuple[float, dict[str, float]]:
        """Return the seconds of the fastest run with a label, and those of each operation in it.

        Operations that run at the same time share it, so that their sum is no more than the first.
        """
        if not self._runs[label]:
            return 0.0, {}
        run = min(self._runs[label], key=lambda each: each.end - each.start)
        shared = shared_time(_within(self._lines, run))
        return (run.end - run.start) / 1e9, {name: each / 1e9 for name, each in shared.items()}

    def read(self, data: ProfileData) -> None:
        """Take the events of a trace."""
        for plane in data.planes:
            for line in plane.lines:
                operations = []
                for event in line.events:
                    span = event.start_ns, event.start_ns + event.duration_ns
                    if event.name.startswith(_PREFIX):
                        label = event.name.removeprefix(_PREFIX)
                        self._runs[label].append(Event(*span, label))
                    elif (operation := _operation(event)) is not None:
                        operations.append(Event(*span, operation))
                self._lines.append(sorted(operations, key=lambda e: (e.start, -e.end)))


def can_trace() -> bool:
    """Whether JAX's profiler works in this process.

    It ends the process where JAX has loaded libtpu, as the extra `aot` installs it, and there is no
    TPU.
    """
    platforms: str | None = getattr(jax.config, _PLATFORMS)
    has_libtpu = find_spec("libtpu") is not None and (not platforms or "tpu" in platforms)
    return not has_libtpu or any(device.platform == "tpu" for device in jax.devices())


@contextmanager
def op_times() -> Iterator[XlaOpTimes]:
    """Trace what runs in this context. Raises RuntimeError if somebody else traces already."""
    times = XlaOpTimes()
    options = ProfileOptions()
    options.python_tracer_level = 0
    with _LOCK, tempfile.TemporaryDirectory(prefix="sardonyx-profile-") as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            yield times
        finally:
            jax.profiler.stop_trace()
        with warnings.catch_warnings():
            # jaxlib makes a type when the first event is read, and from Python 3.13 on the process
            # ends where the warning about that type is an error.
            warnings.simplefilter("ignore", DeprecationWarning)
            for file in Path(folder).rglob("*.xplane.pb"):
                times.read(ProfileData.from_file(str(file)))


def _operation(event: Any) -> str | None:
    """Return the name of the operation of HLO that an event is about."""
    if event.name.startswith("end: "):
        return None
    return next((str(value) for name, value in event.stats if name == "hlo_op"), None)


def _within(lines: Iterable[list[Event]], run: Event) -> list[list[Event]]:
    return [[e for e in line if run.start <= e.start and e.end <= run.end] for line in lines]


def shared_time(lines: Iterable[list[Event]]) -> dict[str, float]:
    """Return the time of each operation; at each moment all that run share it equally.

    Of operations on one line that lie within each other, only the innermost one runs.
    """
    changes: list[tuple[float, int, str]] = []
    for line in lines:
        for start, end, name in _innermost(line):
            changes += [(start, 1, name), (end, -1, name)]
    seconds: dict[str, float] = defaultdict(float)
    running: dict[str, int] = defaultdict(int)
    changes.sort()
    for (now, change, name), (then, *_) in pairwise(changes):
        running[name] += change
        if not running[name]:
            del running[name]
        total = sum(running.values())
        for each, count in running.items() if then > now else ():
            seconds[each] += (then - now) * count / total
    return dict(seconds)


def _innermost(line: list[Event]) -> Iterator[tuple[float, float, str]]:
    """Yield the spans in which an operation of a line runs, and none within it."""
    open_: list[Event] = []
    now = 0.0
    for event in [*line, Event(float("inf"), float("inf"), "")]:
        while open_ and open_[-1].end <= event.start:
            ended = open_.pop()
            if ended.end > now:
                yield now, ended.end, ended.name
            now = max(now, ended.end)
        if open_ and event.start > now:
            yield now, event.start, open_[-1].name
        now = max(now, event.start)
        open_.append(event)
