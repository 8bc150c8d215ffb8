"""Steps on the host between segments: what they return, and who shares its memory."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Unsized


def model(nodes: list[Any], inputs: list[tuple[str, int]], outputs: list[str]) -> Any:
    infos = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in inputs]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "steps", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def places(dtype: int) -> Any:
    """The places of elements other than zero, between two segments on the device."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["twice"], axis=0),
        helper.make_node("NonZero", ["twice"], ["places"]),
        helper.make_node("Mul", ["places", "places"], ["y"]),
    ]
    return model(nodes, [("x", dtype)], ["y", "places"])


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (TensorProto.FLOAT, np.float32),
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.BOOL, np.bool_),
        (TensorProto.INT8, np.int8),
        (TensorProto.UINT64, np.uint64),
    ],
)
@pytest.mark.parametrize("rows", [[[0, 1], [1, 0]], [[0, 0]], np.zeros((0, 2))])
def test_results_of_a_host_step(dtype: int, kind: Any, rows: Any) -> None:
    x = np.asarray(rows, kind)
    loaded = sardonyx.load(places(dtype), backend="jax", compile="now")
    expected = np.stack(np.nonzero(np.concatenate([x, x])))
    for _ in range(3):
        y, found = loaded(x)
        assert y.dtype == found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(y, expected**2)


def test_results_of_jax_inputs_are_jax_arrays() -> None:
    loaded = sardonyx.load(places(TensorProto.FLOAT), backend="jax", compile="now")
    x = jnp.asarray([[0.0, 1.0]])
    for _ in range(3):
        results = loaded(x)
        assert all(isinstance(result, type(x)) for result in results)
        np.testing.assert_array_equal(results["places"], [[0, 1], [1, 1]])


def test_results_of_host_steps_are_not_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = sardonyx.load(places(TensorProto.FLOAT), backend="jax", compile="now")
    x = np.eye(2, dtype=np.float32)
    loaded(x)
    uploaded: list[Any] = []
    put = JaxBackend.put

    def counted(backend: JaxBackend, value: Any) -> Any:
        uploaded.append(value)
        return put(backend, value)

    monkeypatch.setattr(JaxBackend, "put", counted)
    loaded(x)
    assert not uploaded


@sardonyx.op(domain="own")
def Rows(xp: Backend, X: Array) -> Unsized:
    """Return all rows, a view, in a step on the host, as their number could depend on data."""
    return X[: X.shape[0]]


def test_results_do_not_share_memory_with_inputs() -> None:
    nodes = [helper.make_node("Rows", ["x"], ["rows"], domain="own")]
    graph = model(nodes, [("x", TensorProto.FLOAT)], ["rows"])
    graph.opset_import.append(helper.make_opsetid("own", 1))
    loaded = sardonyx.load(graph, backend="jax", compile="now", ops=[Rows])
    x = np.ones((2, 2), np.float32)
    for _ in range(3):
        rows = loaded(x)
        assert not np.may_share_memory(rows, x)
        assert not rows.flags.writeable
        np.testing.assert_array_equal(rows, x)
