"""Names of dimensions as expressions of sizes; any file may hold any name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.graph.buckets.expressions import LONGEST, parse
from tests.support.onnx_builders import model, node, value

SIZES = {"past": 3, "b": 5, "s_77": 7}

expressions = st.recursive(
    st.sampled_from([*SIZES, "1", "12"]),
    lambda inner: st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["", " "]),
        st.one_of(inner, inner.map("({})".format)),
        st.sampled_from(["+", " - ", "*"]),
        st.one_of(inner, inner.map("({})".format)),
        st.sampled_from(["", " "]),
    ),
    max_leaves=12,
)


@given(expressions)
def test_values_are_those_of_python(text: str) -> None:
    parsed = parse(text)
    assert parsed is not None or len(text) > LONGEST
    assert parsed is None or parsed.value(SIZES) == eval(text.strip(), {}, dict(SIZES))


@pytest.mark.parametrize(
    "text",
    ["", " ", "()", "a b", "a +", "+ a", "a)", "(a", "a(b)", "batch.1", "a // 2", "a\x00", "2a"],
)
def test_other_names_are_no_expressions(text: str) -> None:
    assert parse(text) is None


def test_a_missing_size_has_no_value() -> None:
    parsed = parse("past + new")
    assert parsed is not None
    assert parsed.names == {"past", "new"}
    assert parsed.value(SIZES) is None


@pytest.mark.parametrize(
    "name",
    ["(" * 10_000, "-" * 10_000 + "n", "n" + "+n" * 10_000, "n" * 100_000, "n\x01+"],
    ids=range(5),
)
def test_hostile_names_are_names(name: str) -> None:
    graph = model([node("Add", ["x", "x"], ["y"])], [value("x", ["n", name])], ["y"])
    loaded = sardonyx.load(graph, backend="jax", buckets={"n": [4]})
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(np.asarray(loaded(x)), x + x)


def test_threads_parse_at_once() -> None:
    texts = [f"past * {i} + {i} * (b - {i})" for i in range(500)]
    with ThreadPoolExecutor(8) as threads:
        parsed = list(threads.map(parse, texts))
    for i, expression in enumerate(parsed):
        assert expression is not None
        assert expression.value(SIZES) == 3 * i + i * (5 - i)
