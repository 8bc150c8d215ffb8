"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sardonyx.backends import control_groups
from sardonyx.backends.control_groups import text_of


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


# Kernels ask for each weight that they pack, and an answer takes a dozen files.
@cache
def _quotas(root: Path) -> tuple[int, ...]:
    """The quotas of processor time of this process's groups, in processors, when first asked for.

    Version 2 of control groups states one in a file, version 1 in two.
    """
    quotas = []
    for folder in control_groups.folders("cpu", root):
        numbers = text_of(folder / "cpu.max").split()
        if not numbers:
            numbers = [text_of(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        # Without a limit they are absent, "max" or -1.
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            quota, period = map(int, numbers)
            if quota and period:
                quotas.append(math.ceil(quota / period))
    return tuple(quotas)
