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

RULES: Mapping[str, Rule] = {
    **elementwise.RULES,
    **shaping.RULES,
    **slicing.RULES,
    **reducing.RULES,
    **products.RULES,
    **indexing.RULES,
    **control.RULES,
}
