"""A segment as calls of NumPy and of kernels, and how long all takes beside the kernels.

Prices of calls tell that within a factor of ten: small arrays that kernels have pushed out of the
caches take several times as long as in a loop. So calls are tried out where that decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay, Spec, WrittenOut
from sardonyx.backends.numpy import HOST
from sardonyx.graph.programs.written_segment import written_with_kernels
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("compiling")
# Calls take up to so many times their estimated time.
MOST_TIMES = 20
# The least of so many runs counts, as calls go on meanwhile; and it counts twice, as kernels that
# compute nothing leave the caches to the rest.
TRIALS, TIMES = 3, 2


class Failed(Exception):  # noqa: N818  (a signal, not an error)
    """NumPy cannot run the segment for zeros."""


@dataclass
class BesideKernels:
    """A segment on NumPy and kernels, which are compiled programs' own."""

    replay: Replay
    specs: Sequence[Spec]
    inputs: int
    xp: Backend | None

    @cached_property
    def written(self) -> WrittenOut | None:
        """The segment, if its steps can be noted."""
        return written_with_kernels(self.replay, self.specs, self.inputs, self.xp, as_program=True)

    def takes_at_most(self, seconds: float) -> bool:
        """Whether a call takes so long beside kernels, or less."""
        estimated = math.inf if self.written is None else self.written.price * 1e-6
        if not estimated <= seconds < MOST_TIMES * estimated:
            return estimated <= seconds
        return self._tried <= seconds

    @cached_property
    def _tried(self) -> float:
        """The seconds of a call beside kernels, as a trial shows; 0 if it fails for zeros."""
        assert self.written is not None
        assert self.xp is not None
        times = []
        try:
            arrays = [np.zeros(spec.shape, spec.dtype) for spec in self.specs]
            inputs, fixed = arrays[: self.inputs], arrays[self.inputs :]
            with HOST.scope(), self.xp.idle_kernels():
                ahead = self.written.ahead(*fixed)
                for _ in range(TRIALS):
                    start = time.thread_time()
                    self.written.run(_nobody, _fail, *ahead, *inputs)
                    times.append(time.thread_time() - start)
        except Exception as error:  # Zeros may mean nothing to the model.
            _LOG.debug("Steps beside kernels cannot be tried out: %s.", first_line(error))
            return 0.0
        return TIMES * min(times)


def _nobody() -> bool:
    """Nobody watches for bad values."""
    return False


def _fail(*_: Any) -> Sequence[Any]:
    raise Failed
