from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import optimizers as ops
from tests.ops.oracle import assert_same, run

CASES = [
    (ops.Adagrad, 3, {"decay_factor": 0.1, "epsilon": 1e-5, "norm_coefficient": 0.02}),
    (ops.Adam, 4, {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-6, "norm_coefficient": 0.01}),
    (ops.Adam, 4, {"alpha": 0.5, "beta": 0.25, "epsilon": 1e-2, "norm_coefficient_post": 0.25}),
    (ops.Momentum, 3, {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.1}),
    (ops.Momentum, 3, {"alpha": 0.9, "beta": 0.5, "mode": "nesterov", "norm_coefficient": 0.1}),
]
SHAPES = [(2, 3), (), (5,)]


Step = tuple[np.ndarray, ...]


def adagrad(r: Any, t: Any, x: Any, g: Any, h: Any, given: dict[str, Any]) -> Step:
    g = g + given["norm_coefficient"] * x
    h_new = h + g**2
    rate = r / (1 + t * given["decay_factor"])
    return x - rate * g / (np.sqrt(h_new) + given["epsilon"]), h_new


def adam(r: Any, t: Any, *tensors: Any) -> Step:
    x, g, v, h, given = tensors
    alpha, beta = given["alpha"], given["beta"]
    g = g + given.get("norm_coefficient", 0) * x
    v_new = alpha * v + (1 - alpha) * g
    h_new = beta * h + (1 - beta) * g**2
    rate = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t else r
    x_new = x - rate * v_new / (np.sqrt(h_new) + given["epsilon"])
    return (1 - given.get("norm_coefficient_post", 0)) * x_new, v_new, h_new


def momentum(r: Any, t: Any, x: Any, g: Any, v: Any, given: dict[str, Any]) -> Step:
    g = g + given["norm_coefficient"] * x
    v_new = given["alpha"] * v + (given["beta"] if t else 1) * g
    return x - r * (v_new if given["mode"] == "standard" else g + given["alpha"] * v_new), v_new


STEPS: dict[Any, Callable[..., Step]] = {
    ops.Adagrad: adagrad,
    ops.Adam: adam,
    ops.Momentum: momentum,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize(("op", "kinds", "attributes"), CASES)
@pytest.mark.sampled(3)
def test_one_step_for_several_tensors(
    xp: Backend, op: Any, kinds: int, attributes: Any, count: int, dtype: Any
) -> None:
    random = np.random.default_rng(kinds + count)
    tensors = [random.random(shape).astype(dtype) for _ in range(kinds) for shape in SHAPES]
    found = run(xp, op, np.array([0.125]), np.array([count]), *tensors, **attributes)
    assert len(found) == (kinds - 1) * len(SHAPES)
    for i in range(len(SHAPES)):
        wide = (x.astype(np.float64) for x in tensors[i :: len(SHAPES)])
        expected = STEPS[op](0.125, count, *wide, attributes)
        for one, other in zip(found[i :: len(SHAPES)], expected, strict=True):
            assert_same(one, np.asarray(other, dtype), ulps=32)


def test_tensors_of_two_types_keep_their_own(xp: Backend) -> None:
    tensors = [np.ones(2, kind) for _ in range(3) for kind in (np.float32, np.float64)]
    found = run(xp, ops.Adagrad, np.float32([0.5]), np.array([3]), *tensors)
    assert [x.dtype.name for x in found] == ["float32", "float64"] * 2


@pytest.mark.parametrize(
    ("op", "tensors", "changed", "message"),
    [
        (ops.Adagrad, 4, {}, "3 groups"),
        (ops.Adam, 0, {}, "4 groups"),
        (ops.Adam, 6, {}, "4 groups"),
        (ops.Momentum, 3, {"mode": "heavy"}, "standard or nesterov"),
    ],
)
def test_what_is_no_step(op: Any, tensors: int, changed: Any, message: str) -> None:
    attributes = next(given for known, _, given in CASES if known is op) | changed
    inputs = (np.array(0.1, np.float32), np.array(1), *[np.ones(2, np.float32)] * tensors)
    with pytest.raises(ValueError, match=message):
        run(HOST, op, *inputs, **attributes)


def test_a_rate_is_one_number() -> None:
    with pytest.raises(ValueError, match="2 elements"):
        run(HOST, ops.Adagrad, np.ones(2), np.array(1), np.ones(2), np.ones(2), np.ones(2))
