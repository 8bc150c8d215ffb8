"""How much memory this process may have: the least of the machine's memory and all limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from sardonyx.backends import control_groups
from sardonyx.backends.control_groups import text_of

# On systems that state nothing, such as Windows.
USUAL = 2**34


@cache
def memory_limit() -> int:
    """Bytes that this process may have in all, whatever is free at the moment; looked up once.

    A container's control group or `ulimit -v` may allow fewer than the machine has.

    >>> memory_limit() > 2**20
    True
    """
    return min((*_of_the_machine(), *_of_the_process(), *_of_the_groups()), default=USUAL)


def _of_the_machine() -> Iterator[int]:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return
    if pages > 0 and size > 0:
        yield pages * size


def _of_the_process() -> Iterator[int]:
    try:
        resource = import_module("resource")
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield soft


def _of_the_groups(root: Path = Path("/")) -> Iterator[int]:
    """The limits of this process's control groups, in the files of either version."""
    for folder in control_groups.folders("memory", root):
        texts = (text_of(folder / name) for name in ("memory.max", "memory.limit_in_bytes"))
        yield from (int(text) for text in texts if text.isdecimal())
