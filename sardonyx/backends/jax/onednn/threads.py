"""How many threads share the work of one kernel."""

from __future__ import annotations

import os

from sardonyx.backends import processors


def threads() -> int:
    """As many as XLA's pool has, or fewer where a quota leaves less than that.

    XLA sizes its pool by NPROC or by the affinity and knows of no quota. More or fewer pieces of
    work than threads would still give the right results.
    """
    if "xla_cpu_multi_thread_eigen=false" in os.environ.get("XLA_FLAGS", ""):
        return 1
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() and int(asked) else processors.available()
