"""What a value is to JAX, without importing it: nothing is an array of JAX before somebody does."""

from __future__ import annotations

import sys
from typing import Any


def is_array(value: object) -> bool:
    """Whether a value is an array of JAX, or a tracer.

    >>> is_array(1.5)
    False
    """
    return _is_one_of(value, "jax", "Array")


def is_tracer(value: object) -> bool:
    """Whether a value is a tracer of JAX.

    >>> is_tracer(1.5)
    False
    """
    return _is_one_of(value, "jax.core", "Tracer")


def _is_one_of(value: object, module: str, name: str) -> bool:
    # While another thread imports JAX, the module is there and its names are not.
    kind: Any = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)
