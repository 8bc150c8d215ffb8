"""The control groups of this process, in which Linux states limits of its resources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """The folders with the limits of this process's group and of the groups around it.

    Version 2 of control groups has one tree for all controllers, version 1 one for each.
    """
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        # Within a container the group is the mount itself, though its path is the host's.
        group = Path(path.lstrip("/"))
        for each in (group, *group.parents):
            yield mount / each


def text_of(path: Path) -> str:
    """The text of a file; nothing if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
