"""What the fuzzer leaves out, and why: nothing is muted that this table does not name."""

from __future__ import annotations

from dataclasses import replace

from tests.property.case import Case
from tests.property.disagreements import known_disagreement


def is_muted(case: Case) -> bool:
    """Whether runtimes are known to differ on a node, on the compiling backend or on any."""
    return any(known_disagreement(replace(case, on_jax=flag)) for flag in (False, True))
