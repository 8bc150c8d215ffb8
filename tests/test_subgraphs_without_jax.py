"""Subgraphs run without JAX until they are compiled, and give what they give then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.test_control_flow import CASES, PAIRS, ROW, SCAN, assert_equal, model_of
from tests.test_jax_on_cpu import in_a_new_process, only_on_cpus

pytestmark = only_on_cpus

YES = np.asarray(True)
# More graphs than `test_control_flow` has. NumPy takes some values for data that tracing knows.
OTHERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a branch for other sizes": (
        """g (float[3] x, bool which) => (float y) {
            y = If(which) <then_branch = a () => (float p) { p = ReduceSum<keepdims = 0>(x) },
                           else_branch = b () => (float q) {
                               seven = Constant<value_int = 7>() q = Gather(x, seven) }> }""",
        (ROW, YES),
    ),
    "a choice in a choice, and what it captures": (
        """g (float[3] x, bool which, bool other) => (bool a, float[3] y) {
            e = Exp(x)
            a, y = If(which) <
                then_branch = t () => (bool tb, float[3] ty) {
                    tb = Identity(other)
                    ty = If(other) <then_branch = tt () => (float[3] p) { p = Identity(e) },
                                    else_branch = te () => (float[3] q) { q = Mul(e, x) }> },
                else_branch = f () => (bool fb, float[3] fy) {
                    fb = Not(which) fy = Constant<value_floats = [1.0, 2.0, 3.0]>() }> }""",
        (ROW, YES, ~YES),
    ),
    "a choice in a scan in a loop": (
        """g (float[12,2] x, bool which, int64 n) => (float[2] y) {
            yes = Constant<value = bool {1}>() zero = Constant<value_floats = [0.0, 0.0]>()
            y = Loop(n, yes, zero) <body = b
                (int64 i, bool c, float[2] s) => (bool co, float[2] so) {
                    co = Identity(c) f = Cast<to = 1>(i)
                    t = Scan(s, x) <num_scan_inputs = 1, body = d
                        (float[2] u, float[2] xi) => (float[2] uo) {
                            uo = If(which) <then_branch = p () => (float[2] v) { v = Add(u, xi) },
                                            else_branch = q () => (float[2] w) { w = Mul(u, f) }> }>
                    so = Tanh(t) }> }""",
        (PAIRS, YES, np.asarray(11)),
    ),
    "values that change places": (
        """g (float[3] x, float[3] z, bool go) => (float[3] p, float[3] q) {
            p, q = Loop(, go, x, z) <body = b (int64 i, bool c, float[3] s, float[3] t) =>
                (bool co, float[3] so, float[3] to) {
                    last = Constant<value_int = 12>() co = Less(i, last)
                    so = Identity(t) to = Identity(s) }> }""",
        (ROW, -ROW, YES),
    ),
    "a condition that is carried, and ends it": (
        """g (float[3] x) => (float[3] y) {
            yes = Constant<value = bool {1}>()
            y = Loop(, yes, x) <body = b (int64 i, bool c, float[3] s) => (bool co, float[3] so) {
                one = Constant<value = float {1.0}>() end = Constant<value = float {40.0}>()
                so = Add(s, one) top = ReduceMax<keepdims = 0>(so) co = Less(top, end) }> }""",
        (ROW,),
    ),
    "an optional is carried": (
        """g (int64 n, float[3] x) => (float[3] y) {
            yes = Constant<value = bool {1}>() first = Optional(x)
            last = Loop(n, yes, first) <body = b
                (int64 i, bool c, optional(float[3]) s) => (bool co, optional(float[3]) so) {
                    co = Identity(c) e = OptionalGetElement(s) d = Add(e, x) so = Optional(d) }>
            y = OptionalGetElement(last) }""",
        (np.asarray(12), ROW),
    ),
    "a sequence is mapped": (
        """g (float[12,2] x) => (float[12,2] y) {
            five = Constant<value = int64 {5}>() s = SplitToSequence<axis = 0>(x, five)
            t = SequenceMap(s) <body = b (float[k,2] e) => (float[k,2] r) { r = Neg(e) }>
            y = ConcatFromSequence<axis = 0>(t) }""",
        (PAIRS,),
    ),
    "a scan of nothing": (
        SCAN.format(n=0, ways="scan_output_axes = [0]", more="co = Identity(c)"),
        (PAIRS[:0], ROW[1:]),
    ),
}
# A call of these draws the same at random, step by step and compiled.
DRAWS = {
    "in a loop": """g (float[3] x) => (float[3] y, float[k,3] ys) {
        yes = Constant<value = bool {1}>() n = Constant<value = int64 {300}>()
        y, ys = Loop(n, yes, x) <body = b
            (int64 i, bool c, float[3] s) => (bool co, float[3] so, float[3] r) {
                co = Identity(c) r = RandomNormalLike(s) so = Add(s, r) }> }""",
    "in a branch": """g (float[3] x) => (float[3] y) {
        sum = ReduceSum<keepdims = 0>(x) zero = Constant<value = float {0.0}>()
        which = Less(sum, zero)
        y = If(which) <then_branch = a () => (float[3] p) { p = RandomUniformLike(x) },
                       else_branch = b () => (float[3] q) { q = RandomNormalLike(x) }> }""",
}
GRAPHS = {**CASES, **OTHERS}


def feeds_of(graph: str) -> tuple[Any, dict[str, Any]]:
    text, inputs = GRAPHS[graph]
    proto = model_of(text, opset=18)
    names = [info.name for info in proto.graph.input]
    return proto, dict(zip(names, map(np.asarray, inputs), strict=True))


@pytest.mark.parametrize("graph", GRAPHS)
def test_numpy_runs_their_steps(graph: str) -> None:
    proto, feeds = feeds_of(graph)
    stepped = sardonyx.load(proto, backend="jax", compile="never")
    others = [
        sardonyx.load(proto, backend="jax", compile="now"),
        sardonyx.load(proto, backend="numpy"),
    ]
    for _ in range(2):  # Recorded, then replayed.
        found = stepped.run(None, feeds)
        for other in others:
            for one, wanted in zip(found, other.run(None, feeds), strict=True):
                assert_equal(one, wanted)
    stats = stepped.stats()
    assert not stats.uninterpreted
    assert not stats.compiles


@pytest.mark.parametrize("graph", DRAWS)
def test_they_draw_the_same(graph: str) -> None:
    proto = model_of(DRAWS[graph], opset=18)
    stepped = sardonyx.load(proto, backend="jax", compile="never")
    compiled = sardonyx.load(proto, backend="jax", compile="now")
    results = [
        np.asarray(model.run(None, {"x": ROW})[0])
        for key in (3, 4)
        for model in (stepped.bind(key=key), compiled.bind(key=key))
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)
    np.testing.assert_allclose(results[2], results[3], rtol=1e-4)
    assert not np.allclose(results[0], results[2])
    assert not stepped.stats().uninterpreted


def test_a_first_call_imports_no_jax(tmp_path: Path) -> None:
    for i, graph in enumerate(GRAPHS):
        proto, feeds = feeds_of(graph)
        (tmp_path / f"{i}.onnx").write_bytes(proto.SerializeToString())
        np.savez(tmp_path / f"{i}.npz", **feeds)
    script = f"""
import sys
import numpy as np
import sardonyx

for i in range({len(GRAPHS)}):
    with np.load(rf"{tmp_path}/{{i}}.npz") as feeds:
        sardonyx.load(rf"{tmp_path}/{{i}}.onnx").run(None, dict(feeds))
    assert "jax" not in sys.modules, i
"""
    in_a_new_process(script)
