"""JAX with what XLA has on every platform and divides over devices: no kernels of others."""

from __future__ import annotations

from sardonyx.backends.jax.backend import JaxBackend


class PortableBackend(JaxBackend):
    """What it traces can be lowered for a platform that is not here, and runs over a mesh."""

    fuses = False
