"""The log of the library on the standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.printable import printable

NAME = "sardonyx"


class _OneLine(logging.Formatter):
    """Records as text in which names of a model have no control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(printable(line) for line in super().format(record).splitlines())


@contextmanager
def logs_on_stderr(*, is_complete: bool) -> Iterator[None]:
    """Show what the library logs inside of the block: from INFO on, or all of it."""
    logger, level = logging.getLogger(NAME), logging.DEBUG if is_complete else logging.INFO
    before = logger.level
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(shown)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(shown)
        logger.setLevel(before)
