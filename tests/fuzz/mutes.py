"""What the fuzzer leaves out, and why: nothing is muted that this table does not name.

Where onnxruntime is known to do otherwise stands on the page of disagreements. What is wrong in
sardonyx and not mended yet stands here, until it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.property.case import Case
from tests.property.disagreements import known_disagreement


@dataclass(frozen=True)
class Mute:
    """Nodes that are left out for now."""

    operators: tuple[str, ...]
    why: str
    applies: Callable[[Case], bool]


# Nothing is left out at present.
MUTES: tuple[Mute, ...] = ()


def is_muted(case: Case) -> bool:
    """Whether runtimes are known to differ on a node, on the compiling backend or on any."""
    if any(case.op in mute.operators and mute.applies(case) for mute in MUTES):
        return True
    with np.errstate(all="ignore"):
        return any(known_disagreement(replace(case, on_jax=flag)) for flag in (False, True))
