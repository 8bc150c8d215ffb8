"""Where a backend keeps things for other processes."""

from __future__ import annotations

from typing import Any, Protocol


class Folder(Protocol):
    """Values by name, for processes that run this very version on a machine like this."""

    def kept(self, name: str) -> Any:
        """What was kept under the name; None if there is nothing, or nothing that can be read."""

    def keep(self, name: str, value: Any) -> None:
        """Keep the value, which pickle can write, under the name."""
