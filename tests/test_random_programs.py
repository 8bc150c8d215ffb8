"""Random operators in programs: drawn anew at each call, the same again for the same key."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx import InvalidInput, Model
from sardonyx.backends.base import Backend

DRAWS = """<ir_version: 10, opset_import: ["": 22]>
g (float[12,2] x) => (float[12,2] rows, float[3] a, float[3] b, float[3] seeded) {
    zero = Constant<value = float[2] {0.0, 0.0}>()
    y, rows = Scan(zero, x) <num_scan_inputs = 1, body = b
        (float[2] s, float[2] xi) => (float[2] so, float[2] r) {
            r = RandomUniformLike(xi)
            so = Identity(s) }>
    a = RandomNormal<shape = [3]>()
    b = RandomNormal<shape = [3]>()
    seeded = RandomNormal<shape = [3], seed = 1.0>() }"""

X = np.zeros((12, 2), np.float32)


def drawing(backend: Any, **options: Any) -> Model:
    return sardonyx.load(parser.parse_model(DRAWS), backend=backend, **options)


def arrays(values: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(value) for value in values]


def test_each_call_and_each_node_draws_anew_but_for_a_seed(xp: Backend) -> None:
    model = drawing(xp)
    first, second = arrays(model(X)), arrays(model(X))
    for one, other in zip(first[:3], second[:3], strict=True):
        assert (one != other).all()
    assert (first[1] != first[2]).all()
    np.testing.assert_array_equal(first[3], second[3])


def test_each_iteration_draws_anew(xp: Backend) -> None:
    rows = np.asarray(drawing(xp)(X)[0])
    assert len(np.unique(rows)) == rows.size


def test_a_key_gives_the_same_numbers_on_every_backend(xp: Backend) -> None:
    found, expected = drawing(xp).bind(key=7)(X), drawing("numpy").bind(key=7)(X)
    for one, other in zip(arrays(found), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    other = arrays(drawing(xp).bind(key=8)(X))
    assert (other[1] != expected[1]).all()


@pytest.mark.slow
def test_without_compiling_the_numbers_are_the_same() -> None:
    compiled, stepped = (drawing("jax", jit=jit).bind(key=7)(X) for jit in (True, False))
    for one, other in zip(compiled, stepped, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_keys_may_be_jax_s_own_and_traced() -> None:
    model = drawing("jax")
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.vmap(lambda key: model.bind(key=key)(X)["a"])(keys)
    for key, drawn in zip(keys, many, strict=True):
        np.testing.assert_allclose(model.bind(key=key)(X)["a"], drawn, rtol=1e-5)
    assert len(np.unique(many)) == many.size
    jitted = jax.jit(lambda key: model.bind(key=key)(X)["a"])(keys[0])
    np.testing.assert_allclose(jitted, many[0], rtol=1e-5)


@pytest.mark.parametrize("key", ["seven", np.zeros(3, np.uint32), 1.5])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidInput, match="key is a number"):
        drawing("numpy").bind(key=key)
