"""Calls of a model until they run as all later ones, with the options of users."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.models import Feeds

if TYPE_CHECKING:
    from sardonyx import Model

PATIENCE = 300.0
PAUSE = 0.05


def settle(model: Model, feeds: Feeds) -> None:
    """Call the model until no call runs step by step any more."""
    end = time.monotonic() + PATIENCE
    while True:
        before = model.stats().interpreted
        model.run(None, feeds)
        if model.stats().interpreted == before:
            return
        if time.monotonic() > end:
            raise TimeoutError("calls still run step by step")
        time.sleep(PAUSE)
