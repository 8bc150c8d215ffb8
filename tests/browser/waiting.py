"""Waiting for a page, whose policy forbids it to evaluate text.

Playwright's own waiting evaluates its text within the page, if it is not true at once.
"""

from __future__ import annotations

import time
from typing import Any

# Seconds.
PATIENCE = 20.0
UNFOLDED = "() => document.getElementById('live').textContent === 'Everything unfolded'"


def wait_until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait until an expression, or a function of `arg`, is true in a page or a frame."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(10)


def unfold_all(page: Any) -> None:
    """Open all groups, which the page lays out in slices."""
    page.click("text=Unfold all")
    wait_until(page, UNFOLDED)
