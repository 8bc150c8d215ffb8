"""Results of steps on the host, for the programs and callers that get them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from sardonyx.backends.base import Backend


def apart(results: Sequence[Any], arguments: Iterable[Any]) -> list[Any]:
    """Return results that share no memory with the arguments, read-only as JAX's are.

    Strings stay as they are.
    """
    passed = set(map(id, arguments))
    return [r if r.dtype.hasobject else _apart(r, passed) for r in results]


def _apart(result: Any, passed: Container[int]) -> Any:
    own = result if result.base is None and id(result) not in passed else result.copy()
    # An op may return a table that it keeps for all calls.
    own.setflags(write=False)
    return own


def uploaded(backend: Backend, results: Iterable[Any]) -> list[Any]:
    """Return results as arrays of the backend; strings stay as they are."""
    return [r if r.dtype == object else backend.put(r) for r in results]
