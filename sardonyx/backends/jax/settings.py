"""The options of a model that runs on JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.backends.jax.cache import ExecutableFolder
from sardonyx.backends.jax.checks import Checks


@dataclass(frozen=True)
class Settings:
    """The options of `sardonyx.load` that change compiled programs."""

    cache: ExecutableFolder | None = None
    # The precision of products of float32: a level of `PRECISIONS` (arguments.py).
    precision: str = "highest"
    # Whether each primitive takes its simplest form, the same for all sizes.
    simplest: bool = False
    # Whether only shapes are needed, and no results.
    outlines: bool = False
    # The conditions on data, if programs check them.
    checks: Checks | None = None
    # Maximum number of CPU threads of a call; None for all of the process.
    threads: int | None = None
