"""Functions bound as segments on CuPy, and numbers for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends.captures import Captures

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

Function = Callable[..., Sequence[Any]]


def several_kernels(xp: Any, x: Any, weight: Any) -> Any:
    """Sums over columns, which each are a kernel of their own."""
    for _ in range(3):
        x = xp.exp(x - xp.max(x, axis=0, keepdims=True)) * weight
        x = x / xp.sum(x, axis=0, keepdims=True)
    return [x]


def expected(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (result,) = several_kernels(np, x.astype(np.float64), weight.astype(np.float64))
    return np.asarray(result)


WEIGHT = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)


def drawn(seed: int, shape: tuple[int, ...] = (3, 4), dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


class Bound:
    """A function that is bound as a segment, and what became of it."""

    def __init__(
        self, backend: CupyBackend, function: Function, *arrays: Any, inputs: int | None = None
    ) -> None:
        self.captures = Captures()
        self.unfused: list[str] = []
        self.placed = [backend.put(array) for array in arrays]
        self.run = backend.bind(
            function, self.placed, self.unfused.append, inputs=inputs, captures=self.captures
        ).run
        self.segment: Any = self.run

    @property
    def graphs(self) -> list[Any]:
        return [known.graph for known in self.segment.graphs._on.values() if known.graph]


def assert_right(found: Any, x: Any, weight: Any = WEIGHT) -> None:
    """Compare an array of the device with the function's result."""
    np.testing.assert_allclose(found.get(), expected(x, weight), rtol=1e-5)


def has_graph(run: Any) -> bool:
    return any(known.graph is not None for known in run.graphs._on.values())
