"""Loops, branches and sequences, against onnxruntime, in all the forms that they may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import sardonyx
from sardonyx import LimitExceeded, SardonyxError
from sardonyx.backends.base import Backend

ROW = np.arange(3, dtype=np.float32)
PAIRS = np.arange(24, dtype=np.float32).reshape(12, 2)
ONCE_MORE = "co = Identity(c)"


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def loop(body: str, carried: str, gathered: str = "", trips: str = "n") -> str:
    """A graph that is one Loop of `trips` iterations, which carries s and may gather r."""
    rows = gathered.replace("[", "[k,") if "[" in gathered else f"{gathered}[k]"
    outer, inner = (f", {rows} ys", f", {gathered} r") if gathered else ("", "")
    return f"""g (int64 n, {carried} x) => ({carried} y{outer}) {{
        yes = Constant<value = bool {{1}}>()
        twenty = Constant<value = int64 {{20}}>()
        y{", ys" if gathered else ""} = Loop({trips}, yes, x) <body = b
            (int64 i, bool c, {carried} s) => (bool co, {carried} so{inner}) {{ {body} }}> }}"""


LOOPS = {
    "while on the device": (
        loop(f"{ONCE_MORE} so = Mul(s, s)", "float[3]"),
        (np.asarray(3), ROW),
    ),
    "no iteration": (loop(f"{ONCE_MORE} so = Mul(s, s)", "float[3]"), (np.asarray(0), ROW)),
    "for, gathering": (
        loop(
            f"f = Cast<to = 1>(i) so = Add(s, f) r = Identity(s) {ONCE_MORE}",
            "float[3]",
            "float[3]",
            trips="twenty",
        ),
        (np.asarray(0), ROW),
    ),
    "gathering from none": (
        loop(f"so = Mul(s, s) r = Identity(s) {ONCE_MORE}", "float[3]", "float[3]"),
        (np.asarray(0), ROW),
    ),
    "gathering until the device says so": (
        loop(
            """f = Constant<value = float {1.01}>() limit = Constant<value = float {1000.0}>()
               so = Mul(s, f) r = Identity(so) co = Less(so, limit)""",
            "float",
            "float",
        ),
        (np.asarray(5000), np.asarray(2, np.float32)),
    ),
    "gathering at most a few": (
        loop(
            """f = Constant<value = float {1.01}>() limit = Constant<value = float {1000.0}>()
               so = Mul(s, f) r = Identity(so) co = Less(so, limit)""",
            "float",
            "float",
        ),
        (np.asarray(300), np.asarray(2, np.float32)),
    ),
    **{
        f"without a first condition, {name}": (
            loop(
                "bound = Constant<value = float {9.0}>() so = Add(s, s) r = Neg(so) "
                "top = ReduceMax<keepdims = 0>(so) co = Less(top, bound)",
                "float[3]",
                gathered,
                trips=trips,
            ).replace("yes, x)", ", x)"),
            (np.asarray(count), ROW),
        )
        for name, trips, gathered, count in (
            ("a few", "n", "", 2),
            ("many", "n", "", 50),
            ("a static number", "twenty", "", 0),
            ("gathering", "twenty", "float[3]", 0),
            ("as long as the body says", "", "", 0),
        )
    },
    "what grows is walked through": (
        loop(f"so = Concat<axis = 0>(s, s) {ONCE_MORE}", "float[m]"),
        (np.asarray(4), ROW),
    ),
    "what is cut inside is walked through": (
        loop(
            f"""f = Cast<to = 1>(i) more = Greater(s, f) m = Cast<to = 1>(more) places = NonZero(m)
               size = Shape(places) last = Constant<value = int64[1] {{1}}>()
               count = Gather(size, last) add = Cast<to = 1>(count) so = Add(s, add) {ONCE_MORE}""",
            "float[3]",
        ),
        (np.asarray(10), ROW),
    ),
}

SCAN = """g (float[{n},2] x, float[2] w) => (float[2] y, float[k,2] ys) {{
    zero = Constant<value = float[2] {{0.0, 0.0}}>()
    y, ys = Scan(zero, x) <num_scan_inputs = 1, {ways}, body = b
        (float[2] s, float[2] xi) => (float[2] so, float[2] r) {{
            yes = Constant<value = bool {{1}}>() twelve = Constant<value = int64 {{12}}>()
            t = Mul(xi, w)
            so = Loop(twelve, yes, s) <body = inner
                (int64 i, bool c, float[2] q) => (bool co, float[2] qo) {{
                    qo = Add(q, t) {more} }}>
            r = Neg(so) }}> }}"""

SCANS = {
    "few, walked through": (5, "scan_input_directions = [1]"),
    "on the device": (12, "scan_output_directions = [1]"),
    "backwards on the device": (12, "scan_input_directions = [1], scan_output_axes = [-1]"),
}

SEQUENCES = {
    "a sequence is carried": (
        """g (float[4,2] x) => (seq(float[2]) y) {
            empty = SequenceEmpty() yes = Constant<value = bool {1}>()
            four = Constant<value = int64 {4}>()
            y = Loop(four, yes, empty) <body = b
                (int64 i, bool c, seq(float[2]) s) => (bool co, seq(float[2]) so) {
                    xi = Gather<axis = 0>(x, i) so = SequenceInsert(s, xi) co = Identity(c) }> }""",
        (PAIRS[:4],),
    ),
    "split and joined": (
        """g (float[12,2] x) => (float[12,2] y) {
            five = Constant<value = int64 {5}>() s = SplitToSequence<axis = 0>(x, five)
            first = Constant<value = int64 {0}>() t = SequenceErase(s, first)
            a = SequenceAt(s, first) u = SequenceInsert(t, a)
            y = ConcatFromSequence<axis = 0>(u) }""",
        (PAIRS,),
    ),
    "names of what comes after are free inside": (
        """g (float[3] x, bool which) => (float[3] y, float[3] z) {
            y = If(which) <then_branch = a () => (float[3] y) { z = Neg(x) y = Exp(z) },
                           else_branch = b () => (float[3] y) { y = Add(x, x) }>
            z = Mul(x, y) }""",
        (ROW, np.asarray(True)),
    ),
    "rows that were never made have their shape": (
        """g (float[m] x, int64 n) => (float[m] y, float[q,p] z) {
            yes = Constant<value = bool {1}>() zero = Constant<value = int64[1] {0}>()
            y, ys = Loop(n, yes, x) <body = b
                (int64 i, bool c, float[m] s) => (bool co, float[m] so, float[p] r) {
                    places = NonZero(s) t = Transpose(places) f = GatherND(s, t)
                    sum = ReduceSum(f) so = Add(s, sum) r = Mul(so, so) co = Identity(c) }>
            row = Unsqueeze(x, zero) z = Concat<axis = 0>(ys, row) }""",
        (ROW, np.asarray(0)),
    ),
    "either of two": (
        """g (float[3] x, bool which) => (float[3] y) {
            y = If(which) <then_branch = a () => (float[3] p) { p = Neg(x) },
                           else_branch = b () => (float[3] q) { q = Add(x, x) }> }""",
        (ROW, np.asarray(False)),
    ),
    "either of two sizes": (
        """g (float[3] x, bool which) => (float[m] y) {
            y = If(which) <then_branch = a () => (float[3] p) { p = Neg(x) },
                           else_branch = b () => (float[6] q) { q = Concat<axis = 0>(x, x) }> }""",
        (ROW, np.asarray(False)),
    ),
}

CASES = {
    **LOOPS,
    **{
        f"scan, {name}": (SCAN.format(n=n, ways=ways, more=ONCE_MORE), (PAIRS[:n], ROW[1:]))
        for name, (n, ways) in SCANS.items()
    },
    **SEQUENCES,
}


@pytest.mark.parametrize("case", CASES)
def test_control_flow_is_what_onnxruntime_makes_of_it(xp: Backend, case: str) -> None:
    text, inputs = CASES[case]
    proto = model_of(text)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [value.name for value in proto.graph.input]
    feeds = dict(zip(names, inputs, strict=True))
    taken = {value.name for value in session.get_inputs()}
    expected = session.run(None, {name: feeds[name] for name in taken})
    model = sardonyx.load(proto, backend=xp)
    for _ in range(2):  # Recorded, then replayed.
        for found, wanted in zip(model.run(None, feeds), expected, strict=True):
            assert_equal(found, wanted)


def assert_equal(found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert isinstance(found, list)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    else:
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert found.shape == wanted.shape


def segments(case: str) -> list[int]:
    text, inputs = CASES[case]
    program = sardonyx.load(model_of(text), backend="jax").trace(*inputs)
    return [len(segment.steps) for segment in program.segments]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("while on the device", [1]),
        ("for, gathering", [1]),
        ("scan, on the device", [1]),
        ("either of two", [1]),
        # 256 iterations, then up to 512 more; then what was gathered, joined.
        ("gathering until the device says so", [1, 1, 2]),
    ],
)
def test_loops_of_constant_shapes_are_steps_of_the_device(case: str, expected: list[int]) -> None:
    assert segments(case) == expected


def test_to_the_letter_a_loop_without_a_first_condition_ignores_the_bodys(xp: Backend) -> None:
    text, inputs = LOOPS["without a first condition, a static number"]
    for strict, doublings in ((True, 20), (None, 3), (False, 3)):
        model = sardonyx.load(model_of(text), backend=xp, strict=strict)
        for _ in range(2):
            np.testing.assert_allclose(model(*inputs), ROW * 2.0**doublings)


def test_another_count_is_no_new_program() -> None:
    text, _ = LOOPS["while on the device"]
    model = sardonyx.load(model_of(text), backend="jax")
    for trips in (0, 1, 5, 2):
        found = model(np.asarray(trips), ROW)
        np.testing.assert_allclose(found, ROW ** (2.0**trips))


BATCHED = """g (float[2,5,3] x{lens}) => (float[2,3] y, float[2,5,3] ys) {{
    zero = Constant<value = float[2,3] {{0.0, 0.0, 0.0, 0.0, 0.0, 0.0}}>()
    y, ys = Scan({first}, zero, x) <num_scan_inputs = 1, body = b
        (float[3] s, float[3] xi) => (float[3] so, float[3] r) {{
            so = Add(s, xi) r = Identity(so) }}> }}"""


@pytest.mark.parametrize("lengths", [None, [5, 2], [0, 3]])
def test_scans_of_opset_8_go_through_each_sequence_of_a_batch(
    xp: Backend, lengths: Sequence[int] | None
) -> None:
    x = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    text = BATCHED.format(
        lens="" if lengths is None else ", int64[2] lens", first="" if lengths is None else "lens"
    )
    given = [x] if lengths is None else [x, np.asarray(lengths)]
    last, rows = sardonyx.load(model_of(text, opset=8), backend=xp).run(
        None, dict(zip(("x", "lens"), given, strict=False))
    )
    for i, length in enumerate([5, 5] if lengths is None else lengths):
        sums = np.cumsum(x[i, :length], axis=0)
        np.testing.assert_array_equal(last[i], sums[-1] if length else np.zeros(3))
        np.testing.assert_array_equal(rows[i, :length], sums)
        np.testing.assert_array_equal(rows[i, length:], np.zeros((5 - length, 3)))


def test_gradients_go_through_scans() -> None:
    text, (x, w) = CASES["scan, on the device"]
    model = sardonyx.load(model_of(text), backend="jax")
    slope = jax.grad(lambda w: model(x, w)[0].sum())(w)
    np.testing.assert_allclose(slope, 12 * x.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("trips", [0, 3, 12])
def test_gradients_go_through_loops_whose_count_the_caller_knows(trips: int) -> None:
    text, _ = LOOPS["while on the device"]
    model = sardonyx.load(model_of(text), backend="jax")
    shape = jax.jit(model)(np.asarray(trips), ROW).shape  # Here it does not: this must not bind.
    assert shape == ROW.shape
    x = np.full(3, 1.0001, np.float32)
    slope = jax.grad(lambda x: model(np.asarray(trips), x).sum())(x)
    power = 2.0**trips
    np.testing.assert_allclose(slope, power * x ** (power - 1), rtol=1e-3)


def test_of_a_branch_that_the_caller_knows_only_that_one_is_traced() -> None:
    text, _ = SEQUENCES["either of two sizes"]
    model = sardonyx.load(model_of(text), backend="jax")
    for which, size in ((True, 3), (False, 6)):
        assert jax.jit(lambda x, which=which: model(x, np.asarray(which)))(ROW).shape == (size,)


def test_a_loop_that_no_condition_ends_is_refused_when_it_cannot_run_on_the_device() -> None:
    text = loop(f"so = Concat<axis = 0>(s, s) {ONCE_MORE}", "float[m]")
    model = sardonyx.load(model_of(text), backend="numpy")
    with pytest.raises(LimitExceeded, match="Loop"):
        model(np.asarray(2**62), np.ones(0, np.float32))


def test_loops_in_loops_that_are_walked_through_come_to_an_end() -> None:
    text = """g (int64 n, float[m] x) => (float[m] y) {
        y = Loop(n, , x) <body = outer (int64 i, bool c, float[m] s) => (bool co, float[m] so) {
            co = Identity(c)
            so = Loop(n, , s) <body = inner (int64 j, bool d, float[m] t) => (bool do, float[m] to)
                { do = Identity(d) to = Concat<axis = 0>(t, t) }> }> }"""
    limits = sardonyx.Limits(traced_nodes=500)
    model = sardonyx.load(model_of(text), backend="numpy", limits=limits)
    assert model(np.asarray(3), np.ones(1, np.float32)).shape == (512,)
    with pytest.raises(LimitExceeded, match=r"Loop.* 50\d nodes so far.*at most 500.*traced_nodes"):
        model(np.asarray(1000), np.ones(0, np.float32))


@pytest.mark.parametrize(
    ("text", "inputs", "told"),
    [
        (
            loop(
                f"so = Concat<axis = 0>(s, s) r = Identity(s) {ONCE_MORE}", "float[m]", "float[m]"
            ),
            (np.asarray(3), ROW),
            "results of different shapes",
        ),
        (
            "g (seq(float[2]) s) => (float[2] y) {"
            "p = Constant<value = int64 {7}>() y = SequenceAt(s, p) }",
            ([ROW[:2]],),
            "position 7 is out of range",
        ),
        (
            "g (float[3] x) => (float[3] y) {"
            "zero = Constant<value = int64 {0}>() s = SplitToSequence(x, zero)"
            "y = ConcatFromSequence<axis = 0>(s) }",
            (ROW,),
            "split is 0",
        ),
        (
            "g (optional(float[3]) x) => (float[3] y) { y = OptionalGetElement(x) }",
            (None,),
            "the optional is empty",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str, inputs: tuple[Any, ...], told: str) -> None:
    model = sardonyx.load(model_of(text, 18), backend="numpy")
    with pytest.raises(SardonyxError, match=told):
        model(*inputs)
