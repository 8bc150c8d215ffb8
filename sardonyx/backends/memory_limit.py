"""How much memory this process may have: the least of what the machine and its limits say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

# Where nothing is said, as on Windows.
USUAL = 2**34


@cache
def memory_limit() -> int:
    """Bytes that this process may have in all, whatever is free at the moment.

    They are those of the machine, or fewer where a container's control group or `ulimit -v` says
    so. They are looked up once.

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


def _of_the_groups(
    membership: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """What the control groups of this process allow, of both versions, and those around them."""
    for line in _lines(membership):
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = mounted / "memory" if controllers else mounted
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        inner = root / group.lstrip("/")
        # A container may see its own group as the root, whatever name it has outside.
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(root):
                yield from (int(text) for text in _lines(folder / name) if text.isdigit())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
