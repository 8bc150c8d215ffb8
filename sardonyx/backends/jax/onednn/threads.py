"""How many threads share the work of one kernel."""

from __future__ import annotations

import os
from functools import cache

from sardonyx.backends import processors


def threads_of_process() -> int:
    """The number of threads in XLA's pool, or fewer if a quota allows fewer.

    XLA sizes its pool by PJRT_NPROC, NPROC or the affinity, and ignores quotas. Results are
    correct with any number of pieces of work.
    """
    if "xla_cpu_multi_thread_eigen=false" in os.environ.get("XLA_FLAGS", ""):
        return 1
    for name in ("PJRT_NPROC", "NPROC"):
        pool = os.environ.get(name, "")
        if pool.isdecimal() and int(pool):
            return int(pool)
    return processors.available()


@cache
def threads_of_calls() -> int:
    """That number when kernels first asked that run on arrays of the host: it takes some time."""
    return threads_of_process()
