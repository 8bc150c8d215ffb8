"""The rules of all modules, by the name of JAX's primitive."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.backends.jax.padding import (
    control,
    elementwise,
    indexing,
    products,
    reducing,
    shaping,
    slicing,
)
from sardonyx.backends.jax.padding.proof import Rule

_MODULES = (elementwise, shaping, slicing, reducing, products, indexing, control)
RULES: Mapping[str, Rule] = {
    name: rule for module in _MODULES for name, rule in module.RULES.items()
}
