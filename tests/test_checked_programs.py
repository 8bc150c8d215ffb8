"""Programs that check conditions on data: in loops, with caches, under jit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax.experimental import checkify

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import model, node, value, weight
from tests.support.raises import refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ROWS_OF_2 = np.arange(6, dtype=np.float32).reshape(3, 2)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def written(body: str, inputs: str, outputs: str, **options: Any) -> sardonyx.Model:
    text = f'<ir_version: 10, opset_import: ["": 22]> g ({inputs}) => ({outputs}) {{ {body} }}'
    options = {"backend": "jax", "checked": True} | options
    return sardonyx.load(onnx.parser.parse_model(text), **options)


def picking(**options: Any) -> sardonyx.Model:
    return written(
        "[pick] y = Gather(x, i) z = Neg(y)", "float[3,2] x, int64[n] i", "float[n,2] z", **options
    )


COUNTED = """
    n = Constant<value = int64 {20}>() yes = Constant<value = bool {1}>()
    z = Loop(n, yes, s) <body = b (int64 i, bool c, float[2] a) => (bool co, float[2] ao) {
        [inner] r = Gather(x, i) ao = Add(a, r) co = Identity(c)
    }>
"""
CONDITIONED = """
    ten = Constant<value = float {10.0}>() yes = Constant<value = bool {1}>()
    z = Loop(, yes, s) <body = b (int64 i, bool c, float[2] a) => (bool co, float[2] ao) {
        [inner] r = Gather(x, i) ao = Add(a, r) t = ReduceSum<keepdims=0>(ao) co = Less(t, ten)
    }>
"""
GATHERING = """
    ten = Constant<value = float {10.0}>() yes = Constant<value = bool {1}>()
    z, zs = Loop(, yes, s) <body = b (int64 i, bool c, float[2] a)
            => (bool co, float[2] ao, float[2] r) {
        [inner] r = Gather(x, i) ao = Add(a, r) t = ReduceSum<keepdims=0>(ao) co = Less(t, ten)
    }>
"""
SCANNED = """
    z, zs = Scan<num_scan_inputs = 1, body = b (float[2] a, int64 k) => (float[2] ao, float[2] r) {
        [inner] r = Gather(x, k) ao = Add(a, r)
    }>(s, i)
"""


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("body", [COUNTED, CONDITIONED, GATHERING])
def test_conditions_in_loops_name_the_inner_node(body: str, jit: bool) -> None:
    loaded = written(body, "float[m,2] x, float[2] s", "float[2] z", jit=jit)
    start = np.zeros(2, np.float32)
    sums = 20 if body is COUNTED else 5
    assert np.asarray(loaded(np.ones((20, 2), np.float32), start)).tolist() == [sums, sums]
    for _ in range(2):
        with refused(InvalidInput, "'inner'", "'indices' holds 3"):
            loaded(np.ones((3, 2), np.float32), start)


def test_conditions_in_a_scan() -> None:
    inputs = "float[3,2] x, float[2] s, int64[n] i"
    loaded = written(SCANNED, inputs, "float[2] z, float[n,2] zs")
    start = np.zeros(2, np.float32)
    assert np.asarray(loaded(ROWS_OF_2, start, ints(0, 2))[0]).tolist() == [4, 6]
    with refused(InvalidInput, "'inner'", "'indices' holds 8"):
        loaded(ROWS_OF_2, start, ints(0, 8))


@pytest.mark.parametrize("jit", [True, False])
def test_only_the_branch_that_is_taken_is_checked(jit: bool) -> None:
    body = """z = If(c) <
        then_branch = t () => (float[2] a) { [taken] a = Gather(x, i) },
        else_branch = e () => (float[2] b) { [other] b = Neg(s) }
    >"""
    inputs = "float[m,2] x, float[2] s, bool c, int64 i"
    loaded = written(body, inputs, "float[2] z", jit=jit)
    start = np.zeros(2, np.float32)
    assert np.asarray(loaded(ROWS_OF_2, start, np.False_, np.int64(7))).tolist() == [0, 0]
    with refused(InvalidInput, "'taken'", "'indices' holds 7"):
        loaded(ROWS_OF_2, start, np.True_, np.int64(7))


def test_a_constant_in_a_branch_is_refused_where_the_branch_is_taken(xp: Backend) -> None:
    body = """k = Constant<value = int64 {7}>() z = If(c) <
        then_branch = t () => (float[2] a) { [taken] a = Gather(x, k) },
        else_branch = e () => (float[2] b) { [other] b = Neg(s) }
    >"""
    inputs = "float[m,2] x, float[2] s, bool c"
    for checked in (False, True):
        loaded = written(body, inputs, "float[2] z", backend=xp, checked=checked)
        start = np.zeros(2, np.float32)
        assert np.asarray(loaded(ROWS_OF_2, start, np.False_)).tolist() == [0, 0]
        with refused(InvalidInput, "'taken'", "'indices' holds 7"):
            loaded(ROWS_OF_2, start, np.True_)


@pytest.mark.parametrize("checked", [False, True])
def test_a_constant_in_a_body_that_only_the_device_runs(xp: Backend, checked: bool) -> None:
    text = """<ir_version: 10, opset_import: ["": 24, "ai.onnx.preview": 1]>
    g (float[1,1,3,4] q) => (float[1,1,3,4] y) {
        y = ai.onnx.preview.FlexAttention <
            score_mod = b (float[1,1,3,3] s) => (float[1,1,3,3] so) {
                k = Constant<value = int64[3] {0, 1, 9}>() [inner] so = Gather<axis = 3>(s, k) }
        > (q, q, q) }"""
    loaded = sardonyx.load(onnx.parser.parse_model(text), backend=xp, checked=checked)
    with refused(InvalidInput, "'inner'", "'indices' holds 9"):
        loaded(np.ones((1, 1, 3, 4), np.float32))


def test_alike_segments_name_their_own_nodes(xp: Backend) -> None:
    body = """
        [one] a = Gather(x, i) n = NonZero(a) [two] b = Gather(x, j) m = NonZero(b)
    """
    inputs = "float[3,2] x, int64[k] i, int64[k] j"
    loaded = written(body, inputs, "int64[2,p] n, int64[2,q] m", backend=xp)
    loaded(ROWS_OF_2, ints(0), ints(1))
    with refused(InvalidInput, "'one'", "holds 4"):
        loaded(ROWS_OF_2, ints(4), ints(1))
    with refused(InvalidInput, "'two'", "holds 5"):
        loaded(ROWS_OF_2, ints(0), ints(5))


def test_equal_shapes_of_other_constants_are_looked_at_again() -> None:
    """Shapes are inferred once for calls that are alike; conditions are not."""
    for count in (2, 40):  # Written into the program, or passed to it.
        good, bad = np.zeros(count, np.int64), np.zeros(count, np.int64)
        bad[1] = 99
        nodes = [node("Gather", ["x", "p"], ["y"]), node("Gather", ["x", "q"], ["z"], name="late")]
        weights = [weight("p", good), weight("q", bad)]
        loaded = sardonyx.load(model(nodes, ["x"], ["y", "z"], weights), backend="jax")
        with refused(InvalidInput, "'late'", "'indices' holds 99"):
            loaded(X)


def test_a_large_table_of_indices_is_refused_until_it_is_replaced(xp: Backend) -> None:
    table = np.zeros(2000, np.int64)
    table[1234] = 99
    gather = model(
        [node("Gather", ["x", "k"], ["y"], name="w")], ["x"], ["y"], [weight("k", table)]
    )
    loaded = sardonyx.load(gather, backend=xp)
    with refused(InvalidInput, "'w'", "'indices' holds 99"):
        loaded(X)
    loaded.params["k"] = np.ones(2000, np.int64)
    assert np.asarray(loaded(X)).shape == (2000, 3)


def test_a_node_whose_name_holds_braces() -> None:
    gather = model(
        [node("Gather", ["x", "i"], ["y"], name="a{b}{0}%s")],
        ["x", value("i", None, onnx.TensorProto.INT64)],
        ["y"],
    )
    loaded = sardonyx.load(gather, backend="jax", checked=True)
    with refused(InvalidInput, "'a{b}{0}%s' (Gather)", "'indices' holds 9"):
        loaded(X, ints(9))
    error, _ = checkify.checkify(loaded)(X, jnp.asarray(ints(0)))
    assert error.get() is None


def test_the_cache_tells_checked_programs_apart(tmp_path: Path) -> None:
    for _ in range(2):  # The second finds the first one's, and has traced nothing.
        checked = picking(cache=tmp_path)
        with refused(InvalidInput, "'pick'", "'indices' holds 9"):
            checked(ROWS_OF_2, ints(9, 0))
        assert np.asarray(checked(ROWS_OF_2, ints(0, 1))).tolist() == [[0, -1], [-2, -3]]
        plain = picking(cache=tmp_path, checked=False)
        assert np.asarray(plain(ROWS_OF_2, ints(9, 0))).tolist() == [[-4, -5], [0, -1]]


def test_inputs_that_are_given_up() -> None:
    body, inputs = "[pick] y = Gather(x, i) z = Add(p, y)", "float[3,2] x, int64[2] i, float[2,2] p"
    loaded = written(body, inputs, "float[2,2] z")
    for index in (9, 0):
        past = jnp.ones((2, 2), jnp.float32)
        given = jnp.asarray(ROWS_OF_2), jnp.asarray(ints(index, 1)), past
        if index:
            with refused(InvalidInput, "'pick'"):
                loaded.bind(donate=["p"])(*given)
        else:
            assert np.asarray(loaded.bind(donate=["p"])(*given)).tolist() == [[1, 2], [3, 4]]
        assert past.is_deleted()


def test_a_program_without_conditions_reports_nothing() -> None:
    loaded = sardonyx.load("examples/encoder.onnx", backend="jax", checked=True)
    plain = sardonyx.load("examples/encoder.onnx", backend="jax")
    x = np.ones((1, 8, 48), np.float32)
    np.testing.assert_array_equal(np.asarray(loaded(x)), np.asarray(plain(x)))


def test_random_programs_draw_the_same() -> None:
    body = "r = RandomUniformLike(x) [pick] y = Gather(r, i)"
    inputs = "float[3,2] x, int64[n] i"
    loaded = written(body, inputs, "float[n,2] y")
    with refused(InvalidInput, "'pick'"):  # The first call fails as it runs.
        loaded(ROWS_OF_2, ints(9))
    plain = written(body, inputs, "float[n,2] y", checked=False)
    np.testing.assert_array_equal(
        loaded.bind(key=5)(ROWS_OF_2, ints(2)), plain.bind(key=5)(ROWS_OF_2, ints(2))
    )


# -- under a caller's transformations -------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("inner", [COUNTED, CONDITIONED, "[inner] z = Gather(x, i)"])
def test_a_callers_checkify_sees_the_conditions(inner: str, wide: bool) -> None:
    in_loop = inner in (COUNTED, CONDITIONED)
    inputs = "float[m,2] x, float[2] s" if in_loop else "float[m,2] x, int64 i"
    loaded = written(inner, inputs, "float[2] z")
    with jax.enable_x64(wide):
        other = jnp.zeros(2, jnp.float32) if in_loop else jnp.asarray(3)
        checked = jax.jit(checkify.checkify(loaded))
        error, _ = checked(jnp.ones((3, 2), jnp.float32), other)
        assert "Node 'inner' (Gather): 'indices' holds 3, out of" in error.get()
        error, _ = checked(jnp.ones((20, 2), jnp.float32), other)
        assert error.get() is None


def test_without_checkify_jit_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="checkify"):
        jax.jit(picking())(ROWS_OF_2, ints(0))


def test_gradients_of_checked_models() -> None:
    loaded = picking()

    def total(x: Any, i: Any) -> Any:
        return loaded(x, i).sum()

    x = jnp.asarray(ROWS_OF_2)
    slopes = jax.grad(total)(x, jnp.asarray(ints(1, 1)))
    assert slopes.tolist() == [[0, 0], [-2, -2], [0, 0]]
    with refused(InvalidInput, "'pick'", "'indices' holds 9"):
        jax.grad(total)(x, jnp.asarray(ints(9)))


# -- what does not go together --------------------------------------------------------------------


def test_padded_calls_check_nothing() -> None:
    with refused(InvalidInput, "buckets"):
        picking(buckets={"n": [4, 8]})
    assert picking(buckets={"n": [4, 8]}, backend="numpy")(ROWS_OF_2, ints(0)).shape == (1, 2)


def test_exported_programs_check_nothing() -> None:
    content = sardonyx.export("examples/encoder.onnx", {"x": (1, 8, 48)}).to_bytes()
    with refused(InvalidInput, "exported"):
        sardonyx.load(content, checked=True)


@pytest.mark.parametrize("function", [sardonyx.export, sardonyx.shard, sardonyx.to_jax])
@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_functions_that_check_nothing_refuse_a_checked_model(function: Any, backend: str) -> None:
    checked = sardonyx.load("examples/encoder.onnx", backend=backend, checked=True)
    with refused(InvalidInput, "checked=True", "load it without"):
        function(checked)
