"""Results of steps on the host, for the programs and callers that get them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend


def apart(results: Sequence[Any], arguments: Iterable[Any]) -> list[Any]:
    """Return results that share no memory with the arguments, by rows and read-only as JAX's are.

    Strings can be written to, and are copies: an op may return a table that it keeps for all calls.
    """
    passed = set(map(id, arguments))
    return [_apart(result, passed) for result in results]


def _apart(result: Any, passed: Container[int]) -> Any:
    if result.dtype.hasobject:
        return result.copy()
    is_new = result.base is None and id(result) not in passed
    own = np.asarray(result, order="C") if is_new else result.copy()
    own.setflags(write=False)
    return own


def uploaded(backend: Backend, results: Iterable[Any]) -> list[Any]:
    """Return results as arrays of the backend; strings stay as they are."""
    return [r if r.dtype == object else backend.put(r) for r in results]
