"""JAX, which is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sardonyx.backends import find

if TYPE_CHECKING:
    from sardonyx.backends.jax.inside import InsideBackend


def inside_backend(precision: str | None = None) -> InsideBackend:
    """What functions of JAX are traced with."""
    find("jax")
    kind: type[InsideBackend] = import_module("sardonyx.backends.jax.inside").InsideBackend
    return kind(precision=precision)
