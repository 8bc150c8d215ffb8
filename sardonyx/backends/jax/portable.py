"""JAX without kernels of other libraries, which exist on one platform and cannot be divided."""

from __future__ import annotations

from sardonyx.backends.jax.backend import JaxBackend


class PortableBackend(JaxBackend):
    """A backend whose programs can be lowered for other platforms, and run over a mesh."""

    fuses = False
    is_only_for_cpus = False

    @property
    def asks_cudnn(self) -> bool:
        return False
