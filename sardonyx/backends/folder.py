"""Where a backend keeps things for other processes."""

from __future__ import annotations

from typing import Any, Protocol


class Folder(Protocol):
    """Bytes by name, for processes that run this very version on a machine like this."""

    @property
    def dataclasses(self) -> tuple[type[Any], ...]:
        """The backend's own classes of which recordings may hold instances."""

    def kept(self, name: str) -> bytes | None:
        """What was kept under the name; None if there is nothing that is whole."""

    def keep(self, name: str, content: bytes) -> None:
        """Keep the content under the name."""
