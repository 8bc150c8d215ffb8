"""Programs that NumPy computes in less time than a call of an XLA program takes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.backends.executable import Replay, Spec, WrittenOut
from sardonyx.backends.written_out import program

# Microseconds of a call, of each array of NumPy that it takes, and of each result as one.
CALL, INPUT, RESULT = 7.0, 1.0, 3.0


def written_out(
    replay: Replay, specs: Sequence[Spec], inputs: int, results: Sequence[Spec]
) -> WrittenOut | None:
    """Return such a program as calls of NumPy; None for all others."""
    limit = CALL + INPUT * inputs + RESULT * len(results)
    return program.written_out(replay, specs, inputs, results, limit)
