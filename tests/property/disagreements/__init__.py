"""Where sardonyx and onnxruntime differ and are meant to: the one table of it.

The examples that the tests draw are held against it, each entry's own example must still show what
it says, and docs/disagreements.md lists every entry.
"""

from __future__ import annotations

from tests.property.case import Case
from tests.property.disagreements import (
    elementwise,
    learning,
    microsoft,
    networks,
    reductions,
    sampling,
    selection,
    shapes,
    signals,
    windows,
)
from tests.property.disagreements.entry import Disagreement

DISAGREEMENTS = (
    *elementwise.ENTRIES,
    *shapes.ENTRIES,
    *reductions.ENTRIES,
    *selection.ENTRIES,
    *sampling.ENTRIES,
    *windows.ENTRIES,
    *networks.ENTRIES,
    *signals.ENTRIES,
    *learning.ENTRIES,
    *microsoft.ENTRIES,
)


def known_disagreement(case: Case) -> Disagreement | None:
    return next(
        (
            entry
            for entry in DISAGREEMENTS
            if case.op in entry.operators
            and case.domain == entry.example.domain
            and entry.applies(case)
        ),
        None,
    )
