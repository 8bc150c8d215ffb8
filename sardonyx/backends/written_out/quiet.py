"""Runs functions of NumPy without its warnings of numbers, such as those of an overflow.

NumPy keeps its error state in a context variable. `np.errstate` sets it anew at each call, which
takes as long as two operations on small arrays. Here it is set once in a context of its own, and a
call enters that context. Nothing can enter a context twice at a time, so there are as many as calls
that run at the same time: in threads, or in one another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

import numpy as np


class QuietContexts:
    """Contexts in which NumPy warns of nothing; they have no context variables of the caller's."""

    def __init__(self) -> None:
        self._spare: list[Context] = []

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns for these arguments."""
        try:
            context = self._spare.pop()
        except IndexError:
            context = _quiet_context()
        try:
            return context.run(function, *arguments)
        finally:
            self._spare.append(context)


def _quiet_context() -> Context:
    context = Context()
    context.run(np.seterr, all="ignore")
    return context
