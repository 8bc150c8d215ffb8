from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.ops import regex
from tests.ops.microsoft.comparison import assert_agrees, results

TEXTS = np.asarray(
    [
        "Hello World",
        " I love  computer science!",
        "",
        "a",
        "née \u4e2d\u6587 ok\U0001f600x",
        "aa-bbb,c-",
    ],
    object,
)
OPTIONS: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "#"}


@pytest.fixture(params=["google-re2", "own"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With RE2 itself, and as if it were not installed."""
    if request.param == "own":
        monkeypatch.setitem(sys.modules, "re2", None)
    regex.searcher.cache_clear()
    yield request.param
    regex.searcher.cache_clear()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "pattern",
    [
        {"separators": [" "]},
        {"separators": [" ", "-", ","]},
        {"separators": ["l+|o", r"[^\w]"]},
        {"separators": ["b|bb|bbb"]},
        {"separators": [""]},
        {"separators": ["^a", "ok"]},
        {"separators": [r"\b"]},
        {"separators": ["\u6587", "é"]},
        {"separators": ["x"], "tokenexp": "y"},
        {"tokenexp": "."},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "[^ ]+ ?|é"},
        {"tokenexp": "o|[a-z][a-z]"},
        {"tokenexp": r"\w+\b"},
        {"tokenexp": "^."},
        {"tokenexp": "zzz"},
    ],
    ids=str,
)
@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("mincharnum", [1, 2, 4])
def test_tokens(pattern: Any, mark: int, mincharnum: int) -> None:
    options = {"mark": mark, "mincharnum": mincharnum, "pad_value": "<pad>", **pattern}
    if mincharnum > 1 and (pattern.get("separators") == [""] or pattern.get("tokenexp") == "."):
        with pytest.raises(InvalidInput, match="each token is a character"):
            results(HOST, "Tokenizer", TEXTS, **options)
        return
    assert_agrees(HOST, "Tokenizer", TEXTS, **options)
    assert_agrees(HOST, "Tokenizer", TEXTS.reshape(2, 3), **options)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_no_text(mark: int, shape: Any) -> None:
    options = {**OPTIONS, "mark": mark, "separators": [" "]}
    assert_agrees(HOST, "Tokenizer", np.zeros(shape, object), **options)


@pytest.mark.parametrize("mark", [0, 1])
def test_no_tokens_leave_an_empty_axis(mark: int) -> None:
    options = {**OPTIONS, "mark": mark, "separators": [" "]}
    assert_agrees(HOST, "Tokenizer", np.asarray(["", "  "], object), **options)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (TEXTS.reshape(1, 2, 3), {"separators": [" "]}, "must be "),
        (np.asarray("a", object), {"separators": [" "]}, "must be "),
        (TEXTS, {}, "one of separators and tokenexp"),
        (TEXTS, {"tokenexp": "a", "mincharnum": 0}, "mincharnum is 0"),
        (TEXTS, {"tokenexp": "("}, "RE2 rejects"),
    ],
)
def test_tokenizer_checks_its_inputs(x: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "Tokenizer", x, **{**OPTIONS, **options})


@pytest.mark.usefixtures("engine")
def test_a_long_text_takes_no_longer_per_token() -> None:
    text = np.asarray(["né wörds " * 20_000], object)
    found = results(HOST, "Tokenizer", text, **OPTIONS, separators=[" "])
    assert found.shape == (1, 40_000)


def test_a_search_without_re2_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    regex.searcher.cache_clear()
    with pytest.raises(LimitExceeded, match="takes too long"):
        regex.searcher("a*b")("a" * 10_000)(0)
    regex.searcher.cache_clear()
