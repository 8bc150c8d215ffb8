"""An If in a small segment, which is written out as a call of one of two functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import parser

import sardonyx
from tests.support.background import wait_for_background

X = np.array([[1, -2, 3], [0.5, 4, -1]], np.float32)
BRANCHES = {
    "arithmetic": ("a = Exp(x) y = MatMul(a, w)", "y = Relu(x)"),
    "the input": ("y = Identity(x)", "y = Neg(x)"),
    "a weight": ("y = Identity(v)", "y = Sub(x, v)"),
    "a constant": (
        "k = Constant<value = float[2, 3] {1, 2, 3, 4, 5, 6}>() y = Identity(k)",
        "y = Abs(x)",
    ),
    "a view": ("s = Constant<value_ints = [2, 3]>() y = Reshape(x, s)", "y = Add(x, x)"),
    "a choice within": (
        """m = ReduceMax<keepdims = 0>(x) b = Less(m, zero)
        y = If(b) <then_branch = p () => (float[2, 3] o) { o = Exp(x) },
                   else_branch = q () => (float[2, 3] d) { e = Add(x, v) d = Mul(e, x) }>""",
        "y = Mul(x, x)",
    ),
}


def loaded(then: str, other: str, **options: Any) -> sardonyx.Model:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x) => (float[2, 3] z, float[2, 3] u)
        <float[3, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, float[2, 3] v = {{1, 2, 3, 4, 5, 6}},
         float zero = {{0}}> {{
            total = ReduceSum<keepdims = 0>(x)
            c = Greater(total, zero)
            z = If(c) <then_branch = t () => (float[2, 3] y) {{ {then} }},
                       else_branch = f () => (float[2, 3] y) {{ {other} }}>
            u = Identity(z) }}"""
    return sardonyx.load(parser.parse_model(text), **options)


def settled(model: sardonyx.Model) -> sardonyx.Model:
    for _ in range(3):
        model(X)
        wait_for_background()
    return model


@pytest.mark.parametrize("branches", BRANCHES.values(), ids=list(BRANCHES))
def test_both_branches(branches: tuple[str, str]) -> None:
    model = settled(loaded(*branches, backend="jax", compile="background"))
    plain = loaded(*branches, backend="numpy")
    for x in (X, -X, X * 3, np.zeros_like(X), X):
        results = model(x)
        for result, expected in zip(results, plain(x), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)
            assert not np.shares_memory(result, x)
            assert not result.flags.writeable
    assert (model.stats().written_out, model.stats().compiles) == (1, 0)


def test_calls_share_no_memory() -> None:
    model = settled(loaded(*BRANCHES["a constant"], backend="jax", compile="background"))
    first, second = model(X)[0], model(X)[0]
    assert not np.shares_memory(first, second)
    model = settled(loaded(*BRANCHES["a weight"], backend="jax", compile="background"))
    assert not np.shares_memory(model(X)[0], model(X)[0])
    assert_array_equal(model.params["v"], [[1, 2, 3], [4, 5, 6]])


def test_weights_that_are_replaced() -> None:
    model = settled(loaded(*BRANCHES["a weight"], backend="jax", compile="background"))
    model.params["v"] = np.full((2, 3), 7, np.float32)
    assert_array_equal(model(X)[0], np.full((2, 3), 7))
    assert_array_equal(model(-X)[0], -X - 7)


def test_a_branch_that_refuses_data_leaves_them_to_the_program() -> None:
    far = "i = Cast<to = 7>(x) y = GatherElements<axis = 1>(x, i)"
    model = settled(loaded(far, "y = Neg(x)", backend="jax", compile="background"))
    plain = loaded(far, "y = Neg(x)", backend="jax", compile="now")
    for x in (np.ones_like(X), X, -X):
        assert_array_equal(model(x)[0], plain(x)[0])


def test_what_cannot_be_written_out_is_compiled() -> None:
    determinant = "r = Transpose(x) m = MatMul(x, r) d = Det(m) y = Mul(x, d)"
    model = settled(loaded(determinant, "y = Neg(x)", backend="jax", compile="background"))
    plain = loaded(determinant, "y = Neg(x)", backend="numpy")
    for x in (X, -X):
        np.testing.assert_allclose(model(x)[0], plain(x)[0], rtol=1e-5)
    assert (model.stats().written_out, model.stats().compiles) == (0, 1)
