"""One model in many threads, and a model that is interrupted: both stay as good as new."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import NumpyBackend
from tests.support.onnx_builders import INT64, graph, model, node, value, weight

X = np.arange(6, dtype=np.float32).reshape(2, 3)

COMPRESSED = model(
    [
        node("Constant", [], ["half"], value=weight("half", np.float32(0.5))),
        node("Mul", ["x", "half"], ["scaled"]),
        node("Reshape", ["scaled", "shape"], ["folded"]),
        node("ReduceSum", ["folded"], ["total"], keepdims=0),
        node("Greater", ["total", "half"], ["large"]),
        node(
            "If",
            ["large"],
            ["y"],
            then_branch=graph([node("Neg", ["folded"], ["n"])], [], ["n"]),
            else_branch=graph([node("Exp", ["folded"], ["e"])], [], ["e"]),
        ),
    ],
    ["x", value("shape", None, INT64)],
    ["y"],
)


def compressed(x: np.ndarray[Any, Any], shape: list[int]) -> np.ndarray[Any, Any]:
    folded = (x * np.float32(0.5)).reshape(shape)
    return -folded if folded.sum() > 0.5 else np.exp(folded)


def test_threads_may_record_and_replay_at_once(xp: Backend) -> None:
    loaded = sardonyx.load(COMPRESSED, backend=xp)
    shapes = [[6], [2, 3], [3, 2], [1, 6], [6, 1, 1], [-1, 3]]
    calls = [(X * sign, shape) for sign in (1, -1, 0) for shape in shapes] * 4
    random.Random(3).shuffle(calls)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda call: np.asarray(loaded(*call)), calls))
    for call, y in zip(calls, found, strict=True):
        np.testing.assert_allclose(y, compressed(*call), rtol=1e-6)


class Interrupted:
    """A backend that is interrupted at one of its calls, as by Ctrl-C."""

    countdown: int = -1

    def scope(self) -> Any:
        self.tick()
        return super().scope()  # type: ignore[misc]

    def allow(self, *wanted: Any) -> None:
        self.tick()
        super().allow(*wanted)  # type: ignore[misc]

    def spec(self, given: Any) -> Any:
        self.tick()
        return super().spec(given)  # type: ignore[misc]

    def put(self, given: Any) -> Any:
        self.tick()
        return super().put(given)  # type: ignore[misc]

    def fetch(self, given: Any) -> Any:
        self.tick()
        return super().fetch(given)  # type: ignore[misc]

    def multiply(self, a: Any, b: Any) -> Any:
        self.tick()
        return a * b

    def exp(self, x: Any) -> Any:
        self.tick()
        return jnp.exp(x) if isinstance(self, JaxBackend) else np.exp(x)

    def tick(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt


class InterruptedNumpy(Interrupted, NumpyBackend):
    pass


class InterruptedJax(Interrupted, JaxBackend):
    pass


@pytest.mark.parametrize("library", [InterruptedNumpy, InterruptedJax])
@pytest.mark.slow
def test_an_interrupted_model_is_as_good_as_new(library: Any) -> None:
    backend = library()
    calls = [(X, [3, 2]), (-X, [6]), (X, [6])]
    loaded = sardonyx.load(COMPRESSED, backend=backend)
    interruptions = 0
    for moment in range(1, 60):
        for call in calls:
            backend.countdown = moment
            try:
                loaded(*call)
            except KeyboardInterrupt:
                interruptions += 1
            backend.countdown = -1
            if moment % 5 == 0:
                np.testing.assert_allclose(loaded(*call), compressed(*call), rtol=1e-6)
                loaded = sardonyx.load(COMPRESSED, backend=backend)
    assert interruptions > 40
    for call in calls:
        np.testing.assert_allclose(loaded(*call), compressed(*call), rtol=1e-6)
