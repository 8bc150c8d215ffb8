"""Turns on a GPU: tests of several processes share it, but for those that take all its memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn_on_gpu(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait for a turn; the processes whose turns depend on each other name the same folder."""
    if sys.platform == "win32":
        yield
        return
    from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock  # noqa: PLC0415  (Windows has none)

    # Who waits for others to leave holds the queue meanwhile, so that no one new comes in.
    with (folder / "queue").open("w") as queue, (folder / "gpu").open("w") as gpu:
        flock(queue, LOCK_EX)
        flock(gpu, LOCK_EX if alone else LOCK_SH)
        flock(queue, LOCK_UN)
        yield
