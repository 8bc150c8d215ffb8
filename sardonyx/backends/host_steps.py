"""NumPy for steps on the host, such as those whose shapes depend on data, with kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.interpreter import HostKernels
from sardonyx.backends.numpy import HOST, NumpyBackend


def library_of_host(backend: Backend) -> Backend:
    """Return what runs the backend's steps on the host."""
    return backend.for_host_steps() or HOST


class HostSteps(NumpyBackend):
    """NumPy, and kernels for what it takes many operations for."""

    def __init__(self, kernels: HostKernels) -> None:
        super().__init__()
        self._kernels = kernels

    def suppressed(self, boxes: Any, scores: Any, **options: Any) -> Any:
        if not boxes.dtype == scores.dtype == np.float32:
            return None
        return self._kernels.suppressed(boxes, scores, **options)
