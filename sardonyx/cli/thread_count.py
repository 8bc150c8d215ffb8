"""How many threads the libraries of this process use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

_VARIABLES = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Leave so many processors to the libraries that start inside of the block.

    XLA and oneDNN size their pools by the affinity of the process when JAX starts. It works on
    Linux alone.
    """
    if count is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise click.UsageError("--threads needs Linux, which can bind a process to processors.")
    present = sorted(os.sched_getaffinity(0))
    if count > len(present):
        raise click.UsageError(
            f"--threads is {count}, but this process may use {len(present)} processors."
        )
    if "jax" in sys.modules:
        raise click.UsageError("--threads has no effect after JAX has started.")
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, str(count)))
    os.sched_setaffinity(0, present[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, present)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
