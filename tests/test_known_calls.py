"""What nodes call is found once, unless values or shapes of their inputs decide about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.backends import available
from tests.test_buckets import model, normal


def calls_of(loaded: sardonyx.Model, *arrays: Any) -> dict[str, Any]:
    """Return the calls of the steps of a trace, by operator."""
    stages = loaded.trace(*arrays).stages
    steps = [step for stage in stages if stage.segment for step in stage.segment.steps]
    return {step.node.op_type: step.call for step in steps}


def test_traces_of_other_sizes_share_calls() -> None:
    body = """n = Shape<start = 1, end = 2>(x) e = Exp(x) s = Softmax<axis = 1>(e)
        p = Pow(s, k) t = Tile(p, r) y = Slice(t, z, n, o)"""
    proto = model(body)
    constants = {"k": np.float32(2), "r": np.array([1, 2, 1]), "z": [0], "o": [1]}
    for name, value in constants.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    loaded = sardonyx.load(proto, backend="numpy", buckets=None, rewrites=False)
    # Nobody knows after the first trace whether there will be others.
    _, first, second = [calls_of(loaded, normal(2, size, 6)) for size in (3, 5, 7)]
    shared = {name for name, call in first.items() if second[name] is call}
    assert {"Exp", "Softmax", "Pow"} <= shared
    # Its end is a number of the call.
    assert "Slice" not in shared
    for size in (5, 7, 4):
        x = normal(2, size, 6)
        e = np.exp(np.exp(x))
        expected = np.square(e / e.sum(axis=1, keepdims=True))
        assert_allclose(loaded(x), expected, rtol=1e-5)


@pytest.mark.parametrize("backend", available())
def test_attributes_that_are_inputs_today_are_not_forgotten(backend: str) -> None:
    proto = parser.parse_model(
        """<ir_version: 6, opset_import: ["": 9]> g (float[n, 4] x) => (float[n, 2] y) {
            s = Slice<starts = [1], ends = [3], axes = [1]>(x) y = Clip<min = 0.0, max = 0.5>(s)
        }"""
    )
    loaded = sardonyx.load(proto, backend=backend, buckets=None)
    for size in (3, 5, 4, 3):
        x = normal(size, 4)
        assert_allclose(np.asarray(loaded(x)), x[:, 1:3].clip(0, 0.5))


def test_an_input_that_is_left_out_is_another_call() -> None:
    body = "y = Clip(x, low, high) z = Clip(x, , high) w = Clip(x, low)"
    proto = model(body, output="y")
    del proto.graph.output[:]
    for name in "yzw":
        proto.graph.output.add(name=name)
    for name, value in (("low", -0.5), ("high", 0.5)):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    loaded = sardonyx.load(proto, backend="numpy", buckets=None)
    for size in (3, 5, 4, 3):
        x = normal(2, size, 6)
        for ours, theirs in zip(
            loaded(x), (x.clip(-0.5, 0.5), x.clip(None, 0.5), x.clip(-0.5)), strict=True
        ):
            assert_allclose(ours, theirs)


def test_errors_name_the_node_in_later_traces() -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[a, b] x, float[c, d] v) => (float[] y) { e = Exp(x) y = MatMul(e, v) }"""
    )
    loaded = sardonyx.load(proto, backend="numpy", buckets=None)
    for rows in (2, 3, 4):
        x, v = np.ones((rows, 3), np.float32), np.ones((3, 4), np.float32)
        assert loaded(x, v).shape == (rows, 4)
    with pytest.raises(sardonyx.errors.SardonyxError, match=r"output 'y'.*MatMul"):
        loaded(np.ones((2, 3), np.float32), np.ones((5, 4), np.float32))
