"""Loops without a trip count that matters: those that end do, and those that cannot are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx import LimitExceeded
from sardonyx.backends.base import Backend
from tests.support.raises import refused

UNBOUNDED = [2**63 - 1, 2**63 - 2, 2**62, 2**40, None]
PASSED_ON = "co = Identity(c)"
ALWAYS = "co = Constant<value = bool {1}>()"
BY_DATA = """limit = Constant<value = float {100.0}>() sum = ReduceSum<keepdims = 0>(so)
    co = Less(sum, limit)"""
BY_NUMBER = "last = Constant<value = int64 {19}>() co = Less(i, last)"
ROW = np.float32([1, 2])


def loop(trips: int | None, cond: str, going: str, gathers: bool = False) -> Any:
    rows, row, made = ("float[k,2] ys, ", ", float[2] r", "r = Neg(s)") if gathers else ("", "", "")
    count = "" if trips is None else f"n = Constant<value = int64 {{{trips}}}>()"
    text = f"""<ir_version: 10, opset_import: ["": 22]>
    g (bool given, float[2] x) => ({rows}float[2] y) {{
        {count} yes = Constant<value = bool {{1}}>()
        y{", ys" if gathers else ""} = Loop({"n" if count else ""}, {cond}, x) <body = b
            (int64 i, bool c, float[2] s) => (bool co, float[2] so{row}) {{
                so = Add(s, s) {made} {going} }}> }}"""
    return parser.parse_model(text)


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("cond", ["yes", ""], ids=["given", "absent"])
@pytest.mark.parametrize("trips", [*UNBOUNDED, 2**39])
@pytest.mark.parametrize(
    ("going", "expected"), [(BY_DATA, [64, 128]), (BY_NUMBER, [2**20, 2**21])], ids=["sum", "count"]
)
def test_a_condition_ends_a_loop_whatever_its_trip_count(
    xp: Backend, trips: int | None, cond: str, going: str, expected: list[int], gathers: bool
) -> None:
    made = sardonyx.load(loop(trips, cond, going, gathers), backend=xp)(np.False_, ROW)
    result = made["y"] if gathers else made
    assert np.asarray(result).tolist() == expected
    if gathers:
        assert made["ys"].shape == (expected[0].bit_length() - 1, 2)


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("trips", UNBOUNDED)
@pytest.mark.parametrize(
    ("cond", "going"),
    [("yes", PASSED_ON), ("", PASSED_ON), ("", BY_DATA), ("yes", ALWAYS)],
    ids=["passed on", "ignored", "ignored, by data", "always"],
)
def test_a_loop_that_never_ends_is_refused(
    xp: Backend, trips: int | None, cond: str, going: str, gathers: bool
) -> None:
    if going is ALWAYS and not xp.compiled:
        pytest.skip("it is refused after the number of iterations that are walked through")
    # By the letter of the standard a loop without a first condition ignores the body's too.
    strict = True if cond == "" else None
    loaded = sardonyx.load(loop(trips, cond, going, gathers), backend=xp, strict=strict)
    with refused(LimitExceeded, "Loop", "never ends", f"{2**40:,}"):
        loaded(np.False_, ROW)


@pytest.mark.parametrize("trips", UNBOUNDED)
def test_a_loop_that_does_not_begin_is_no_endless_one(xp: Backend, trips: int | None) -> None:
    loaded = sardonyx.load(loop(trips, "given", PASSED_ON), backend=xp)
    assert np.asarray(loaded(np.False_, ROW)).tolist() == ROW.tolist()
