"""JAX on the CPU, as it decides on an H100."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend


class OnHopper(JaxBackend):
    """A backend on the CPU that takes its device for an H100."""

    _capability = (9, 0)  # type: ignore[assignment]
    is_only_for_cpus = False  # type: ignore[assignment]

    def _with(self, **choices: Any) -> Backend:
        settings = replace(self.settings, **choices)
        return type(self)(self.device, jit=self.compiled, settings=settings)
