"""A segment of NumPy, whose steps run one by one at first, and which is then written out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any
from weakref import ref

from sardonyx.backends.executable import Executable
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.provisional import Provisional, Runs, write_out
from sardonyx.logs import postponed


class SteppedSegment(Provisional):
    """The steps of a segment; after the second run they are written out, in the background."""

    def __init__(self, steps: Executable, write_out: Callable[[Runs], Executable | None]) -> None:
        self._steps = steps
        self._write_out = write_out
        self._writing = Lock()
        self._executable: Executable | None = None
        self._has_run = False
        self._runs = Runs()
        self._is_submitted = False

    @property
    def executable(self) -> Executable | None:
        return self._executable

    def run(self, *arrays: Any) -> Sequence[Any]:
        start, has_run = time.monotonic(), self._has_run
        results = self._steps.run(*arrays)
        self._has_run = True
        # The first run may prepare weights, and most shapes come only once.
        if has_run and not self._is_submitted:
            self._is_submitted = True
            self._runs = self._runs.and_one(time.monotonic() - start)
            COMPILES.submit(partial(_write, ref(self), self._runs), is_next=True)
        return results

    def compiled(self) -> Executable:
        return self.written(Runs())

    def is_written_out(self) -> bool:
        return self.compiled().on_numpy is not None

    def wait_for_runs(self) -> None:
        """Ask again after the next run whether to write it out."""
        self._is_submitted = False

    def written(self, runs: Runs) -> Executable:
        """Return the function for all runs from now on, which may be that of the steps."""
        with postponed(), self._writing:
            if self._executable is None:
                self._executable = self._write_out(runs) or self._steps
            return self._executable


def _write(reference: ref[SteppedSegment], runs: Runs) -> None:
    """Write a segment out, unless its model is gone."""
    segment = reference()
    if segment is not None and not write_out(partial(segment.written, runs)):
        segment.wait_for_runs()
