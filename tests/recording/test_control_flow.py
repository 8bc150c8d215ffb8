"""Subgraphs as Python functions: on arrays, under JAX, and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx

O = sardonyx.opset(20)  # noqa: E741
X = np.float32([[1, 2, 3], [4, 5, 6]])


def absolute(x: Any) -> Any:
    total = O.ReduceSum(x, keepdims=0)
    return O.If(O.Less(total, 0.0), then_branch=lambda: O.Neg(x), else_branch=lambda: x)


def doubled(x: Any) -> Any:
    def body(i: Any, going: Any, carried: Any) -> Any:
        return going, O.Mul(carried, 2.0), O.ReduceSum(carried, keepdims=0)

    return O.Loop(np.int64(3), None, x, body=body)


def running_sum(x: Any) -> Any:
    def body(state: Any, row: Any) -> Any:
        total = O.Add(state, row)
        return total, total

    return O.Scan(np.zeros(3, np.float32), x, body=body, num_scan_inputs=1)


def nested(x: Any) -> Any:
    def body(i: Any, going: Any, carried: Any) -> Any:
        more = O.If(
            O.Equal(O.Mod(i, 2), 0),
            then_branch=lambda: O.Add(carried, x),
            else_branch=lambda: carried,
        )
        return going, more

    return O.Loop(np.int64(4), np.array(True), x, body=body)


def mapped(x: Any) -> Any:
    rows = O.SplitToSequence(x, axis=0)
    return O.ConcatFromSequence(O.SequenceMap(rows, body=lambda row: O.Mul(row, row)), axis=0)


EXPECTED = {
    absolute: [X],
    doubled: [X * 8, np.float32([21, 42, 84])],
    running_sum: [X.sum(0), X.cumsum(0)],
    nested: [X * 3],
    mapped: [X * X],
}


def as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, tuple) else [values]


@pytest.mark.parametrize("function", EXPECTED, ids=lambda f: f.__name__)
def test_it_runs_on_arrays_under_jax_and_recorded(function: Any, tmp_path: Path) -> None:
    expected = EXPECTED[function]
    model = sardonyx.record(function, {"x": ("float32", ["rows", 3])}, backend="numpy")
    path = tmp_path / "model.onnx"
    sardonyx.save(model, path)
    onnx.checker.check_model(path)
    theirs = onnxruntime.InferenceSession(path).run(None, {"x": X})
    runs = [function(X), function(jnp.asarray(X)), model(X), theirs]
    if function is not mapped:
        runs.append(jax.jit(function)(X))
    for values in runs:
        for found, want in zip(as_list(values) if values is not theirs else theirs, expected,
                               strict=True):  # fmt: skip
            np.testing.assert_array_equal(found, want)


def test_gradients_flow_through_bodies_and_what_they_read() -> None:
    def loss(x: Any, w: Any) -> Any:
        scaled = O.If(O.Less(np.float32(0), 1.0), then_branch=lambda: O.Mul(x, w),
                      else_branch=lambda: x)  # fmt: skip
        return O.ReduceSum(scaled, keepdims=0)

    x, w = jnp.asarray(X), jnp.full((2, 3), 2.0)
    by_x, by_w = jax.grad(loss, (0, 1))(x, w)
    np.testing.assert_array_equal(by_x, w)
    np.testing.assert_array_equal(by_w, x)


def test_a_value_of_a_subgraph_cannot_be_read_around_it() -> None:
    kept: list[Any] = []

    def leaking(x: Any) -> Any:
        O.If(
            O.Less(O.ReduceSum(x, keepdims=0), 0.0),
            then_branch=lambda: kept.append(O.Neg(x)) or kept[0],
            else_branch=lambda: x,
        )
        return O.Neg(kept[0])

    with pytest.raises(sardonyx.InvalidInput, match="a value of a subgraph"):
        sardonyx.record(leaking, [X])


def test_branches_return_as_many_arrays() -> None:
    with pytest.raises(sardonyx.InvalidInput, match="let both return as many"):
        O.If(np.array(True), then_branch=lambda: (X, X), else_branch=lambda: X)
