"""What a platform has not, and what users are told instead of an error of its compiler."""

from __future__ import annotations

import re
from typing import NamedTuple


class Refusal(NamedTuple):
    """Patterns of the names of cases and of targets, and part of the sentence that users read."""

    cases: str
    targets: str
    sentence: str


REFUSALS: tuple[Refusal, ...] = ()


def reason_to_refuse(name: str, target: str) -> str | None:
    """Return part of the sentence with which a case is refused, or None."""
    for each in REFUSALS:
        if re.fullmatch(each.cases, name) and re.match(each.targets, target):
            return each.sentence
    return None
