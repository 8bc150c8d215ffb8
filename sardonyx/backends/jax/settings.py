"""The options of a model that runs on JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.backends.jax.cache import CompiledFolder
from sardonyx.backends.jax.checks import Checks


@dataclass(frozen=True)
class Settings:
    """What a model was loaded with."""

    cache: CompiledFolder | None = None
    # Of products of float32: "highest", "high" or "bfloat16".
    precision: str = "highest"
    # Whether only shapes are asked for, so that forms that are fast to run need not be traced.
    outlines: bool = False
    # The conditions on data, where programs check them.
    checks: Checks | None = None
