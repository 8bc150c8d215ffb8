from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from tests.ops.oracle import assert_same, onnxruntime_run, run

OPS = pytest.mark.parametrize(
    "op", [NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss], ids=lambda op: op.name
)
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "sum", "mean"])


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def classes(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 4, shape)


def loss_of(result: Any) -> np.ndarray:
    """SoftmaxCrossEntropyLoss also has the logarithms of the probabilities."""
    found: np.ndarray = result[0] if isinstance(result, tuple) else result
    return found


@pytest.mark.sampled(5)
@OPS
@REDUCTIONS
@pytest.mark.parametrize("rest", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
@pytest.mark.parametrize("ignore_index", [None, 2], ids=str)
def test_losses_are_those_of_onnxruntime(
    xp: Backend, op: Any, reduction: str, rest: Any, weighted: bool, ignore_index: int | None
) -> None:
    x = drawn(5, 4, *rest).astype(np.float32)
    given = [x, classes(5, *rest), *([np.float32([0.5, 2, 3, 0.25])] if weighted else [])]
    options: dict[str, Any] = {"reduction": reduction}
    if ignore_index is not None:
        options["ignore_index"] = ignore_index
    result = run(xp, op, *given, **options)
    outputs = 1 if op is NegativeLogLikelihoodLoss else 2
    expected = onnxruntime_run(op.name, *given, opset=13, outputs=outputs, **options)
    assert_same(loss_of(result), loss_of(expected), ulps=32)
    if outputs == 2:
        assert_same(result[1], expected[1], ulps=32)


@OPS
@REDUCTIONS
@pytest.mark.parametrize("ignored", [-100, 4, 2**40, -(2**63)])
def test_an_ignored_class_need_not_exist(
    xp: Backend, op: Any, reduction: str, ignored: int
) -> None:
    x, target = drawn(6, 4), np.array([0, ignored, 3, ignored, 1, 2])
    options: dict[str, Any] = {"ignore_index": ignored, "reduction": reduction}
    result = loss_of(run(xp, op, x, target, **options))
    expected = loss_of(run(HOST, op, x[[0, 2, 4, 5]], target[[0, 2, 4, 5]], reduction=reduction))
    assert_same(result[[0, 2, 4, 5]] if reduction == "none" else result, expected)
    if reduction == "none":
        assert not result[[1, 3]].any()


@OPS
def test_nothing_is_left_of_what_is_ignored(xp: Backend, op: Any) -> None:
    x, target = drawn(3, 4), np.array([1, 1, 2], np.int32)
    x[0, 0], x[1] = -np.inf, np.nan
    target[:2] = 0
    assert np.isfinite(loss_of(run(xp, op, x, target, ignore_index=0)))
    assert np.isnan(loss_of(run(xp, op, x, np.zeros(3, np.int32), ignore_index=0)))


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@OPS
def test_narrow_floats_are_summed_in_float32(backend: Backend, op: Any, dtype: Any) -> None:
    x, target = drawn(2000, 4).astype(dtype), classes(2000)
    weight = np.array([0.5, 2, 3, 0.25], dtype)
    result = loss_of(run(backend, op, x, target, weight))
    wide = (a.astype(np.float64) for a in (x, weight))
    expected = loss_of(run(HOST, op, next(wide), target, next(wide)))
    assert_same(result, expected.astype(dtype), ulps=1)


@OPS
@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([(4,), (4,)], {}, "do not fit predictions|need a second axis"),
        ([(5, 4), (4,)], {}, "do not fit predictions"),
        ([(5, 4, 3), (5,)], {}, "do not fit predictions"),
        ([(5, 0), (5,)], {}, "have no classes"),
        ([(5, 4), (5,), (5,)], {}, "weight has shape"),
        ([(5, 4), (5,)], {"reduction": "median"}, "but must be none, sum or mean"),
    ],
)
def test_refuses(xp: Backend, op: Any, shapes: Any, options: Any, message: str) -> None:
    scores, labels, *weights = shapes
    given = [np.ones(scores), np.zeros(labels, np.int64), *map(np.ones, weights)]
    with pytest.raises(ValueError, match=message):
        run(xp, op, *given, **options)


@OPS
@pytest.mark.parametrize("beyond", [-1, 4])
def test_a_class_that_there_is_not_is_refused_where_that_shows(op: Any, beyond: int) -> None:
    with pytest.raises(ValueError, match="out of the range"):
        run(HOST, op, drawn(2, 4), np.array([0, beyond]))
