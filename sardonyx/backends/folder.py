"""The protocol of a cache on disk that processes share: a folder, or one file that is only read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol


class Folder(Protocol):
    """Bytes by name, for processes with this version of the package on a machine like this."""

    @property
    def path(self) -> Path:
        """Where the entries are."""

    @property
    def dataclasses(self) -> tuple[type[Any], ...]:
        """The classes of the backend that a recording may contain."""

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None if it is missing or damaged."""

    def write(self, name: str, content: bytes) -> None:
        """Write an entry."""

    def save(self, path: str | os.PathLike[str], identity: str) -> None:
        """Write all entries to one file, for models on a backend of this identity."""

    def misfit(self, identity: str) -> str | None:
        """Why a file lacks a model that is loaded with a backend of this identity.

        The reason completes "it was compiled ...". None for a folder, which lacks none for long.
        """
