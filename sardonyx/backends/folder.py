"""The protocol of a cache on disk that processes share."""

from __future__ import annotations

from typing import Any, Protocol


class Folder(Protocol):
    """Bytes by name, for processes with this version of the package on a machine like this."""

    @property
    def dataclasses(self) -> tuple[type[Any], ...]:
        """The classes of the backend that a recording may contain."""

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None if it is missing or damaged."""

    def write(self, name: str, content: bytes) -> None:
        """Write an entry."""
