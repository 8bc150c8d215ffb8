"""Calls by default: the first run step by step, later ones written out or compiled, all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.ops.definition import Unsized
from sardonyx.types import Array, Backend
from tests.support.onnx_builders import INT64, STRING, model, node, value, weight

X = np.arange(12, dtype=np.float32).reshape(3, 4)
INT16, UINT8 = onnx.TensorProto.INT16, onnx.TensorProto.UINT8
TEXTS = np.array(["a", "b", "zz"], object)


def answers(proto: onnx.ModelProto, x: Any, **options: Any) -> list[Any]:
    """What calls with such an input return, the first one first."""
    loaded = sardonyx.load(proto, backend="jax", compile="background", **options)
    results = [loaded(x) for _ in range(3)]
    loaded.compile({"x": x})
    return results + [loaded(x) for _ in range(2)]


@pytest.mark.parametrize("turn", [np.ascontiguousarray, np.asfortranarray, lambda x: x[::-1]])
@pytest.mark.parametrize(
    "last",
    [
        node("Neg", ["t"], ["y"]),
        node("Concat", ["t", "t"], ["y"], axis=0),
        node("Softmax", ["t"], ["y"]),
        node("Clip", ["t", "one"], ["y"]),
    ],
    ids=lambda last: last.op_type,
)
def test_results_lie_by_rows(last: onnx.NodeProto, turn: Callable[[Any], Any]) -> None:
    one = weight("one", np.float32(1))
    nodes = [node("Transpose", ["x"], ["t"]), last]
    first, *others = answers(model(nodes, [value("x", ["n", 4])], ["y"], [one]), turn(X))
    assert first.flags.c_contiguous
    for other in others:
        assert other.flags.c_contiguous
        np.testing.assert_allclose(other, first, rtol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Reshape", ["x", "column"], ["y"])],
        [node("Expand", ["x", "column"], ["y"])],
        [node("Slice", ["x", "one", "three"], ["y"])],
        [node("Unsqueeze", ["x", "one"], ["u"]), node("Transpose", ["u"], ["y"])],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_strings_belong_to_the_caller(nodes: Sequence[onnx.NodeProto]) -> None:
    places = {"column": [3, 1], "one": [1], "three": [3]}
    weights = [weight(name, np.array(numbers)) for name, numbers in places.items()]
    ends = [value("x", ["n"], STRING)], [value("y", None, STRING)]
    x = TEXTS.copy()
    for result in answers(model(nodes, *ends, weights), x):
        assert result.flags.writeable
        assert result.flags.c_contiguous
        result[...] = "changed"
        np.testing.assert_array_equal(x, TEXTS)


@pytest.mark.parametrize("target", [INT64, UINT8, INT16])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_numbers_that_an_integer_type_lacks(kind: Any, target: int) -> None:
    proto = model(
        [node("Cast", ["x"], ["y"], to=target)],
        [value("x", ["n"], helper.np_dtype_to_tensor_dtype(np.dtype(kind)))],
        [value("y", ["n"], target)],
    )
    numbers = [0.0, -0.5, -1.0, 7.7, 255.9, -40_000.0, 60_000.0, np.inf, -np.inf, np.nan]
    with np.errstate(invalid="ignore"):
        x = np.array(numbers).astype(kind)
    expected = sardonyx.load(proto, backend="jax", compile="now")(x)
    for y in answers(proto, x):
        np.testing.assert_array_equal(y, expected)
    for y in answers(proto, x[:5]):
        np.testing.assert_array_equal(y, expected[:5])


class Scopes(JaxBackend):
    """JAX that counts how often its settings are entered, as a call of its programs does."""

    count = 0

    def scope(self) -> AbstractContextManager[object]:
        self.count += 1
        return super().scope()


def test_calls_stay_on_numpy_after_a_trace(tmp_path: Path) -> None:
    """So do those of arrays of another class, which share the function that is written out."""
    proto = model([node("Neg", ["x"], ["y"])], [value("x", ["n", 4])], ["y"])
    backend = Scopes()
    loaded = sardonyx.load(proto, backend=backend, compile="background")
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    loaded.compile({"x": X})
    loaded(X), loaded(mapped)
    loaded.trace(X), loaded.compile({"x": X})
    before = backend.count
    for x in (X, mapped, X, mapped):
        np.testing.assert_array_equal(loaded(x), -x)
    assert backend.count == before


@sardonyx.op(domain="mine")
def Drawn(xp: Backend, x: Array) -> Unsized:
    """Is a function of more than its arguments."""
    return x + np.random.default_rng().random(x.shape)


@sardonyx.op(domain="mine")
def Table(xp: Backend, x: Array) -> Array:
    """Returns an array that it keeps for all calls."""
    return KEPT if bool((x == "b").any()) else x


KEPT = TEXTS.copy()


def test_functions_of_a_user_run_at_each_call() -> None:
    double = onnx.TensorProto.DOUBLE
    ends = [value("x", ["n"], double)], [value("y", ["n"], double)]
    proto = model([node("Drawn", ["x"], ["y"], domain="mine")], *ends, mine=1)
    drawn = [result.tobytes() for result in answers(proto, np.zeros(3), ops=[Drawn])]
    assert len(set(drawn)) == len(drawn)


def test_tables_that_functions_keep() -> None:
    ends = [value("x", ["n"], STRING)], [value("y", ["n"], STRING)]
    proto = model([node("Table", ["x"], ["y"], domain="mine")], *ends, mine=1)
    loaded = sardonyx.load(proto, backend="jax", compile="background", ops=[Table])
    for _ in range(4):
        result = loaded(TEXTS)
        np.testing.assert_array_equal(result, TEXTS)
        result[...] = "changed"
