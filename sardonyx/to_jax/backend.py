"""The backend of pure functions; it imports JAX when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends import find

if TYPE_CHECKING:
    from sardonyx.backends.jax.inside import InsideBackend


def inside_backend(
    precision: str | None = None, dtype: np.dtype[Any] | None = None
) -> InsideBackend:
    """Return the backend with which pure functions are traced."""
    find("jax")
    kind: type[InsideBackend] = import_module("sardonyx.backends.jax.inside").InsideBackend
    return kind(precision=precision, dtype=dtype)
