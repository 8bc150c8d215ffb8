"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def available(root: Path = Path("/")) -> int:
    """Return the number of processors that affinity and quotas leave to this process, at least 1.

    Linux states both: the scheduler's affinity, and the quotas of control groups, under `root`.

    >>> available() >= 1
    True
    """
    return max(1, min([_schedulable(), *_quotas(root)]))


def _schedulable() -> int:
    # From Python 3.13 on; it also heeds PYTHON_CPU_COUNT.
    count: Callable[[], int | None] | None = getattr(os, "process_cpu_count", None)
    if count is not None:
        return count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[int]:
    """Each quota of processor time on the way from this process's groups up, in processors."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if not controllers:
            mount = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            mount = root / "sys/fs/cgroup/cpu"
        else:
            continue
        # Within a container the group is the mount itself, though its path is the host's.
        group = Path(path.lstrip("/"))
        for each in (group, *group.parents):
            limit = _limit(mount / each)
            if limit is not None:
                yield limit


def _limit(group: Path) -> int | None:
    """A group's own quota: one file in version 2 of control groups, two in version 1."""
    numbers = _text(group / "cpu.max").split()
    if not numbers:
        numbers = [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None  # Absent, "max", or -1: there is no limit.
    quota, period = map(int, numbers)
    return math.ceil(quota / period) if quota and period else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
