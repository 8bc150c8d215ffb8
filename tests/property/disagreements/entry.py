"""What an entry of the table of disagreements says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.property.case import Case

SARDONYX, ONNXRUNTIME, OPEN = "sardonyx", "onnxruntime", "open"


@dataclass(frozen=True)
class Disagreement:
    """What differs in which operators, why, and who is right: one of the two, or it is open."""

    operators: tuple[str, ...]
    what: str
    why: str
    right: str
    applies: Callable[[Case], bool]
    example: Case
