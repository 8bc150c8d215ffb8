"""A progress bar while a program compiles, in a terminal or a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock, Timer

# Seconds until the bar appears.
PATIENCE = 1.0

# Held by the work that shows its bar: two bars would overwrite each other.
_showing = Lock()


@contextmanager
def compiling(title: str) -> Iterator[None]:
    """Show a moving bar in the terminal or notebook if the block takes longer than a second."""
    with working(f"compiling {title}"):
        yield


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show a moving bar with a text while the block runs, unless another one moves already.

    >>> with working("loading"):
    ...     print("loaded")
    loaded
    """
    if not _can_show() or not _showing.acquire(blocking=False):
        yield
        return
    from rich.console import Console  # noqa: PLC0415  (costs time, and is rarely needed)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(text, total=None)
    timer = Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
        _showing.release()


def _can_show() -> bool:
    """Return whether a bar can move here; in a notebook without ipywidgets rich only warns."""
    if "ipykernel" in sys.modules:
        return find_spec("ipywidgets") is not None
    return sys.stderr.isatty()
