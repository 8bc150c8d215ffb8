"""Results that callers have, and the padded arrays that they are views of."""

from __future__ import annotations

from typing import Any
from weakref import ref

# Smaller arrays are copied faster than they are found again.
SMALLEST = 2**12


class Lent:
    """Finds the padded array again if a result comes back as an argument, as a cache does.

    Results are read-only, so the padded array still holds the same elements.
    """

    def __init__(self) -> None:
        self._padded: dict[int, tuple[ref[Any], Any]] = {}

    def __call__(self, result: Any, padded: Any) -> Any:
        """The result, remembered for as long as somebody has it."""
        if result.nbytes >= SMALLEST:
            key = id(result)
            watched = ref(result, lambda _: self._padded.pop(key, None))
            self._padded[key] = watched, padded
        return result

    def padded(self, array: Any) -> Any:
        """The padded array of a result; None for any other array."""
        entry = self._padded.get(id(array))
        return entry[1] if entry is not None and entry[0]() is array else None
