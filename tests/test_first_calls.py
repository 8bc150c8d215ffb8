"""The first call of a signature gives what later calls give, to the last bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.onnx_builders import model, node, value, weight

MODELS = sorted(Path("tests/models").glob("*.onnx"))


def drawn(loaded: sardonyx.Model, seed: int = 0) -> dict[str, Any]:
    """Inputs as the model declares them; what is free is 2 along the first axis, and else 5."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for info in loaded.inputs:
        shape = [
            n if isinstance(n, int) and n else 5 if i else 2 for i, n in enumerate(info.shape or ())
        ]
        if info.dtype is not None and info.dtype.kind == "f":
            inputs[info.name] = rng.standard_normal(shape).astype(info.dtype)
        else:
            inputs[info.name] = rng.integers(0, 2, shape).astype(info.dtype)
    return inputs


def assert_same(first: Any, again: Any) -> None:
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "choices", [{"backend": "numpy"}, {"backend": "jax"}], ids=["numpy", "jax"]
)
@pytest.mark.sampled(3)
def test_later_calls_give_the_same(path: Path, choices: dict[str, Any]) -> None:
    loaded = sardonyx.load(path, **choices)
    inputs = drawn(loaded)
    first = loaded.run(None, inputs)
    for _ in range(2):
        assert_same(first, loaded.run(None, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_later_calls_step_by_step_give_the_same(path: Path) -> None:
    loaded = sardonyx.load(path, backend="jax", jit=False)
    inputs = drawn(loaded)
    first = loaded.run(None, inputs)
    assert_same(first, loaded.run(None, inputs))


@pytest.mark.parametrize("jit", [True, False], ids=["compiled", "step by step"])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_what_depends_on_weights_alone_is_the_same(backend: str, jit: bool) -> None:
    """It is computed ahead of later calls, and may not be by another library then."""
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((17, 17)).astype(np.float32) for name in ("w", "v")}
    proto = model(
        [
            node("Exp", ["w"], ["a"]),
            node("Sin", ["a"], ["b"]),
            node("MatMul", ["b", "v"], ["c"]),
            node("Softmax", ["c"], ["d"]),
            node("MatMul", ["x", "d"], ["e"]),
            node("Tanh", ["e"], ["y"]),
        ],
        [value("x", ["n", 17])],
        ["y"],
        [weight(name, array) for name, array in arrays.items()],
    )
    loaded = sardonyx.load(proto, backend=backend, jit=jit)
    x = rng.standard_normal((5, 17)).astype(np.float32)
    assert_same([loaded(x)], [loaded(x)])


def test_all_threads_see_the_same() -> None:
    loaded = sardonyx.load("examples/encoder.onnx", backend="numpy")
    x = np.random.default_rng(2).standard_normal((2, 16, 48)).astype(np.float32)
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(loaded, [x] * 64))
    assert_same([results[0]] * 63, results[1:])
