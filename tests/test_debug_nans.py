"""`jax_debug_nans` finds NaNs, and the error names the node."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx

PLACE = r"Node 'logs' \(Log.*; inputs h: float32\[3\]\).*nan"
BAD = np.ones(3, np.float32)


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


LOGS = model(
    [
        helper.make_node("Neg", ["x"], ["h"], "negs"),
        helper.make_node("Log", ["h"], ["l"], "logs"),
        helper.make_node("Exp", ["l"], ["y"], "exps"),
    ]
)


@pytest.fixture(autouse=True)
def _looking_for_nans() -> Iterator[None]:
    with jax.debug_nans(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(
    "options",
    [{}, {"compile": "now"}, {"compile": "never"}, {"jit": False}, {"buckets": {"n": [8]}}],
    ids=str,
)
def test_a_call_names_the_node(options: dict[str, Any]) -> None:
    loaded = sardonyx.load(LOGS, backend="jax", **options)
    for x in (BAD, jnp.asarray(BAD)):
        with pytest.raises(FloatingPointError, match=PLACE):
            loaded(x)
        assert np.allclose(loaded(-x), BAD)


@pytest.mark.parametrize(
    "transform", [lambda f: f, jax.jit, jax.grad], ids=["eager", "jit", "grad"]
)
def test_a_pure_function_names_the_node(transform: Any) -> None:
    fn, params = sardonyx.to_jax(LOGS)
    with pytest.raises(FloatingPointError, match=PLACE):
        transform(lambda x: fn(params, x).sum())(jnp.asarray(BAD))


def test_a_call_that_was_compiled_before_names_the_node() -> None:
    loaded = sardonyx.load(LOGS, backend="jax", compile="now")
    with jax.debug_nans(False):
        assert np.isnan(loaded(BAD)).all()
    with pytest.raises(FloatingPointError, match=PLACE):
        loaded(BAD)


def test_padding_is_not_reported() -> None:
    """A mean over no rows is NaN, but nobody sees what lies in the padding."""
    quotient = model([helper.make_node("Div", ["x", "x"], ["y"], "quotient")])
    loaded = sardonyx.load(quotient, backend="jax", buckets={"n": [8]}, compile="now")
    for size in (3, 5):
        assert np.allclose(loaded(np.ones(size, np.float32)), 1)
    with pytest.raises(FloatingPointError, match="Node 'quotient'"):
        loaded(np.zeros(3, np.float32))
