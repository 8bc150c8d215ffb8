"""Compiles and searches that a test began and that still go on."""

from __future__ import annotations

import time

from sardonyx.graph.programs.background import COMPILES

PATIENCE_OF_TESTS = 120.0


def wait_for_background() -> None:
    """Wait until no job runs, and none waits."""
    end = time.monotonic() + PATIENCE_OF_TESTS
    while COMPILES._threads:
        assert time.monotonic() < end
        time.sleep(0.005)
