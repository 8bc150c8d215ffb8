"""JAX, with all programs written out as calls of NumPy that can be, whatever they cost."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.backends.executable import Replay, Spec, WrittenOut
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.written_out.program import written_out

# Microseconds of a program, of any size that tests have.
MOST = 1e6


class WritingJax(JaxBackend):
    def written_out(
        self, replay: Replay, specs: Sequence[Spec], inputs: int, results: Sequence[Spec]
    ) -> WrittenOut | None:
        return written_out(replay, specs, inputs, results, MOST)
