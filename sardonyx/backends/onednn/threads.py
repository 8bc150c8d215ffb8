"""How many threads XLA shares work among."""

from __future__ import annotations

import os


def threads() -> int:
    """As many as XLA has; more or fewer pieces of work would still give the right results."""
    if "xla_cpu_multi_thread_eigen=false" in os.environ.get("XLA_FLAGS", ""):
        return 1
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() else len(os.sched_getaffinity(0))
