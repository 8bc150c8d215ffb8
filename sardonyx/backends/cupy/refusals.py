"""What CUDA's libraries refuse: from then on it is computed in another way."""

from __future__ import annotations

import logging
from typing import Any

from sardonyx.backends.cupy.cublas import REFUSALS, CublasError

LOG = logging.getLogger("sardonyx.cupy")
_refused: set[tuple[Any, ...]] = set()


def is_refused(key: tuple[Any, ...]) -> bool:
    return key in _refused


def note(error: Exception, key: tuple[Any, ...], work: str, instead: str) -> None:
    """Log that a library failed; if it would refuse the same again, it is not asked again."""
    if not isinstance(error, CublasError) or error.status in REFUSALS:
        _refused.add(key)
    LOG.warning("%s is left to %s, because %s", work, instead, error)
