from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops import automaton, flat_patterns, regex
from sardonyx.ops import text as ops
from sardonyx.ops.automaton import Automaton
from tests.ops.oracle import onnxruntime_run, run


def strings(*words: Any) -> np.ndarray:
    return np.array(words, object)


# -- StringConcat ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), [((), ()), ((), (2,)), ((2, 1), (3,)), ((0, 2), (2,))])
def test_concat_broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = (np.full(shape, word, object) for shape, word in ((left, "añ"), (right, "\0b")))
    result = run(HOST, ops.StringConcat, x, y)
    assert result.dtype == object
    assert result.shape == np.broadcast_shapes(left, right)
    assert set(result.ravel().tolist()) <= {"añ\0b"}


def test_concat_of_ever_longer_strings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(HOST), "largest_value", 2**20)
    x = strings("x" * 2**20)
    with pytest.raises(LimitExceeded):
        run(HOST, ops.StringConcat, x, x)
    with pytest.raises(LimitExceeded):
        run(HOST, ops.StringConcat, strings(*["x"] * 600)[:, None], strings(*["x"] * 600))


# -- StringSplit ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "attributes"),
    [
        (["a,b", ",", "a,,b,", "c"], {"delimiter": ","}),
        (["aXYbXYXY", "XXYY"], {"delimiter": "XY"}),
        (["a,b,c", "d"], {"delimiter": ",", "maxsplit": 1}),
        (["a,b,c"], {"delimiter": ",", "maxsplit": 0}),
        ([" a  b c ", "", "d"], {}),
        ([" a  b  c "], {"maxsplit": 1}),
        ([" a  b  c "], {"maxsplit": 0}),
        ([" a b"], {"maxsplit": 7, "delimiter": ""}),
        (["", " "], {}),
        ([["a b", "c"], ["", "d e f"]], {"maxsplit": -1}),
    ],
)
def test_split_as_onnxruntime_does(words: Any, attributes: Any) -> None:
    x = strings(*words)
    parts, counts = run(HOST, ops.StringSplit, x, **attributes)
    expected = onnxruntime_run("StringSplit", x, opset=20, outputs=2, **attributes)
    assert parts.tolist() == expected[0].tolist()
    assert parts.shape == expected[0].shape
    np.testing.assert_array_equal(counts, expected[1])
    assert counts.dtype == np.int64


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_split_keeps_the_shape_before_the_parts(shape: tuple[int, ...]) -> None:
    x = np.empty(shape, object)
    x.fill("a b\0")
    parts, counts = run(HOST, ops.StringSplit, x)
    assert counts.shape == shape
    assert parts.shape == (*shape, 0 if 0 in shape else 2)
    assert set(parts.ravel().tolist()) <= {"a", "b\0"}


def test_split_takes_any_white_space() -> None:
    """As the standard's word for it does; onnxruntime looks for spaces alone."""
    parts, counts = run(HOST, ops.StringSplit, strings("\ta\n\u2003b\r "))
    assert parts.tolist() == [["a", "b"]]
    assert counts.tolist() == [2]


def test_split_makes_one_part_of_an_empty_string() -> None:
    """As a delimiter that does not occur leaves a string whole; onnxruntime counts none."""
    parts, counts = run(HOST, ops.StringSplit, strings("", ","), delimiter=",")
    assert parts.tolist() == [["", ""], ["", ""]]
    assert counts.tolist() == [1, 2]


def test_split_is_refused_where_its_table_would_be_huge() -> None:
    x = strings("," * 2**18, *[""] * 2**14)
    with pytest.raises(LimitExceeded):
        run(HOST, ops.StringSplit, x, delimiter=",")


# -- StringNormalizer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "attributes", "expected"),
    [
        (["a", "B", "b", ""], {"stopwords": ("B",)}, ["a", ""]),
        (["a", "B", "b"], {"stopwords": ("B",), "is_case_sensitive": 1}, ["a", "b"]),
        (["a b", "b"], {"stopwords": ("b",)}, ["a b"]),
        (["É", "é", "e"], {"stopwords": ("é",)}, ["e"]),
        (["ΟΔΟΣ", "Straße"], {"stopwords": ("οδος", "STRASSE")}, [""]),
        (["straße", "çé"], {"case_change_action": "UPPER"}, ["STRASSE", "ÇÉ"]),
        (["I\u0130\u0131i"], {"case_change_action": "LOWER"}, ["ii\u0307\u0131i"]),
        (
            ["I\u0130\u0131i"],
            {"case_change_action": "LOWER", "locale": "tr_TR.UTF-8"},
            ["\u0131i\u0131i"],
        ),
        (["I\u0307x"], {"case_change_action": "LOWER", "locale": "az"}, ["ix"]),
        (
            ["I\u0130\u0131i"],
            {"case_change_action": "UPPER", "locale": "tr-TR"},
            ["I\u0130I\u0130"],
        ),
        (["I", "i", "\u0130"], {"stopwords": ("\u0131",), "locale": "tr"}, ["i", "\u0130"]),
        (["Éa"], {"case_change_action": "UPPER", "locale": "C"}, ["ÉA"]),
        (["É", "é"], {"stopwords": ("É",), "locale": "POSIX"}, ["é"]),
        (["x", "x"], {"stopwords": ("X",)}, [""]),
        # Each word for itself, whatever lies between them.
        (["A\nB", "C"], {"case_change_action": "LOWER", "locale": "C"}, ["a\nb", "c"]),
        (["\n", "", "ΣΔ"], {"case_change_action": "LOWER"}, ["\n", "", "σδ"]),
        (["ΔΣ", "ΔΣ", "Δ"], {"case_change_action": "LOWER"}, ["δς", "δς", "δ"]),
        (["A\0", "\0"], {"case_change_action": "LOWER"}, ["a\0", "\0"]),
        (["", ""], {"case_change_action": "UPPER"}, ["", ""]),
        (["AÉ", "B"], {"case_change_action": "LOWER", "locale": "C"}, ["aÉ", "b"]),
        ([], {"case_change_action": "LOWER"}, [""]),
        ([], {}, [""]),
    ],
)
def test_normalizer(words: Any, attributes: Any, expected: Any) -> None:
    result = run(HOST, ops.StringNormalizer, strings(*words), **attributes)
    assert result.tolist() == expected
    row = run(HOST, ops.StringNormalizer, strings(*words).reshape(1, -1), **attributes)
    assert row.tolist() == [expected]
    assert row.dtype == object


@pytest.mark.parametrize(
    ("words", "attributes", "message"),
    [
        ([["a"], ["b"]], {}, "must be"),
        ([[["a"]]], {}, "must be"),
        (["a"], {"case_change_action": "Title"}, "'Title'"),
        (["a"], {"locale": "./etc"}, "must begin with a language"),
    ],
)
def test_normalizer_refuses(words: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(HOST, ops.StringNormalizer, strings(*words), **attributes)
    with pytest.raises(ValueError, match="must be"):
        run(HOST, ops.StringNormalizer, np.array("a", object))


# -- RegexFullMatch -------------------------------------------------------------------------------


@pytest.fixture(params=["google-re2", "own"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With RE2 itself, and as if it were not installed."""
    if request.param == "own":
        monkeypatch.setitem(sys.modules, "re2", None)
    regex.matcher.cache_clear()
    yield request.param
    regex.matcher.cache_clear()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a.b", "a\nb", False),
        ("a|ab", "ab", True),
        ("(a|b)*?c", "abbac", True),
        ("a$", "a\n", False),
        (r"a$\n", "a\n", False),
        (r"\s+", " \t\n\f\r", True),
        (r"\s", "\v", False),
        (r"\s", "\u00a0", False),
        (r"\w\d", "é1", False),
        (r"\w\d", "_٣", False),
        (r"[^\d]", "٣", True),
        (r"\bé\b", "é", False),
        (r"a\b.\Bb", "a--b", False),
        (r"a\b-\b\wb", "a-_b", True),
        ("[]a]+", "]a", True),
        ("[^]a]", "]", False),
        ("[a-]", "-", True),
        (r"[\d-z]+", "5-z", True),
        (r"[\]\-x]+", "]-x", True),
        ("[[]", "[", True),
        ("a{2}b{0,1}c{1,}", "aacc", True),
        ("a{2,3}", "aaaa", False),
        ("x{,2}", "x{,2}", True),
        ("(^|a){2}", "a", True),
        ("(|a)+", "aa", True),
        ("(?:a|b)(?P<n>c)(?<m>d)", "bcd", True),
        ("", "", True),
        ("^*", "", True),
        (".", "😀", True),
        ("}]", "}]", True),
        (r"\.\_\/", "._/", True),
        ("[a-z]+[0-9]+x", "ab12x", True),
        ("[a-z]+[0-9]+x", "ab12xx", False),
        ("^[a-z]*$", "", True),
        ("[a-z]{2,3}[0-9]", "abcd1", False),
        ("a?a", "a", True),
        ("[ab]{1,2}c?b", "ab", True),
        ("a{0}b", "b", True),
        ("[^b]+b", "a\0😀\nb", True),
        (r"[^\d\D]a", "a", False),
        (r"[\d\D]", "\0", True),
    ],
)
def test_patterns_mean_what_re2_says(engine: str, pattern: str, text: str, expected: bool) -> None:
    assert run(HOST, ops.RegexFullMatch, strings(text), pattern=pattern).tolist() == [expected]
    theirs = onnxruntime_run("RegexFullMatch", strings(text), opset=20, pattern=pattern)
    assert theirs.tolist() == [expected]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "*", "a**", "a|*", "(a", "[a", "[z-a]", r"[a-\d]", r"\1", r"\Z", "(?=a)"),
        *("(?<!a)b", "a{1001}", "(a{10}){101}", "a{2,1}", "\\", "\\é", "(?z)", "a{2}{3}"),
        *("a*+", "(?#x)", "[]", "[^]", "[]]a]["),
    ],
)
def test_what_re2_lacks_is_refused(engine: str, pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        run(HOST, ops.RegexFullMatch, strings("a"), pattern=pattern)


@pytest.mark.parametrize("pattern", ["(?i)a", r"\pL", "[[:alpha:]]", r"\x41", r"\Qa\E"])
def test_what_needs_re2_says_so(engine: str, pattern: str) -> None:
    if engine == "own":
        with pytest.raises(ValueError, match=r"pip install 'sardonyx\[text\]'"):
            run(HOST, ops.RegexFullMatch, strings("a"), pattern=pattern)
    else:
        run(HOST, ops.RegexFullMatch, strings("a"), pattern=pattern)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "((a?)*)*b", "(a|aa)+b", "a*a*a*a*a*a*a*b", "(a?){500}b"]
)
def test_no_pattern_runs_away(engine: str, pattern: str) -> None:
    began = time.process_time()
    assert not run(HOST, ops.RegexFullMatch, strings("a" * 2000), pattern=pattern).any()
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("()" * 20_000, False), ("(a|" * 900 + "b" + ")" * 900, True), ("(x)" * 10_000, False)],
    ids=["many groups", "deep groups", "many letters"],
)
def test_groups_take_no_memory(pattern: str, expected: bool) -> None:
    """In a process of its own, since RE2 allocates where no tool of Python's looks."""
    script = (
        "import resource, sys, numpy as np, sardonyx\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "x, pattern = np.array(['a', 'x' * 10_000], object), sys.stdin.read()\n"
        "sardonyx.run_op('RegexFullMatch', x, pattern='a')\n"
        "before = peak()\n"
        "found = sardonyx.run_op('RegexFullMatch', x, pattern=pattern)\n"
        "print(found.tolist()[0], peak() - before)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], input=pattern, capture_output=True, text=True, check=True
    )
    found, megabytes = done.stdout.split()
    assert found == str(expected)
    assert int(megabytes) < 200
    assert time.monotonic() - began < 20


def test_a_pattern_has_a_length() -> None:
    with pytest.raises(LimitExceeded, match="300,000 characters"):
        run(HOST, ops.RegexFullMatch, strings("a"), pattern="a" * 300_000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a?" * 2000, "a" * 4000),
        ("(a*)" * 2000, "a" * 4000 + "b"),
        ("(a|b)*a" + "(a|b)" * 900, "ab" * 10_000),
        ("((a?){30}){30}" * 3, "a" * 20_000),
        ("(((a|b|c)*)*)*x", "abc" * 100_000),
    ],
)
@pytest.mark.slow
def test_work_without_re2_has_an_end(monkeypatch: Any, pattern: str, text: str) -> None:
    began = time.process_time()
    with contextlib.suppress(LimitExceeded):
        assert not Automaton(regex.read(pattern)).matches(text)
    assert time.process_time() - began < 10


def test_states_that_come_again_are_looked_up() -> None:
    """Without look-ups each of these texts would exceed the limit of visits."""
    many = Automaton(regex.read("(((a|b|c)*)*)*x"))
    assert many.matches("abc" * 300_000 + "x")
    assert not many.matches("abc" * 300_000)


def test_an_automaton_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers do not depend on which positions are in memory."""
    parts = regex.read(r"(a|b)*a\b(a|b|-){3}")
    texts = ["".join(each) for n in range(8) for each in itertools.product("ab-", repeat=n)][::7]
    texts += [chr(i) for i in range(300, 400)]
    expected = [Automaton(parts).matches(text) for text in texts]
    assert any(expected)
    monkeypatch.setattr(automaton, "MOST_REMEMBERED", 40)
    own = Automaton(parts)
    for text, result in zip(texts, expected, strict=True):
        assert own.matches(text) == result
        assert own._remembered <= 40 + 2 * automaton.ENTRY + own._size


def test_a_pattern_without_re2_has_a_size() -> None:
    with pytest.raises(ValueError, match=r"parts.*pip install 'sardonyx\[text\]'"):
        Automaton(regex.read("(abcdefghij){900}"))


def test_a_pattern_is_needed() -> None:
    with pytest.raises(ValueError, match="'pattern' is missing"):
        run(HOST, ops.RegexFullMatch, strings("a"))


def test_nesting_has_an_end() -> None:
    deep = "(" * 50 + "a" + ")" * 50
    assert Automaton(regex.read(deep + "?")).matches("a")
    with pytest.raises(ValueError, match="not supported without google-re2"):
        regex.read("(" + deep + ")")


atoms = st.sampled_from(
    ["a", "b", "-", ".", "^", "$", r"\b", r"\B", r"\w", r"\W", r"\d", "[ab]", "[^a]", "[a-]", r"\n"]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0}", "{2,}", "*?"])).map(
            "(?:{0[0]}){0[1]}".format
        ),
    ),
    max_leaves=8,
)


@given(patterns, st.lists(st.text("ab-_1\né", max_size=6), min_size=20, max_size=20))
@settings(deadline=None, max_examples=300)
def test_all_matchers_find_the_same(pattern: str, texts: list[str]) -> None:
    compiled, own = re2.compile(pattern), Automaton(regex.read(pattern))
    fastest = regex.matcher(pattern)
    for text in texts:
        expected = compiled.fullmatch(text) is not None
        assert own.matches(text) == bool(fastest(text)) == expected, text


runs = st.tuples(
    st.sampled_from(["a", "b", "-", "[ab]", "[^a]", r"\w", r"\d", ".", "é"]),
    st.sampled_from(["", "", "*", "+", "?", "{2}", "{0}", "{1,2}", "{0,2}", "{2,}"]),
).map("".join)


@given(st.lists(runs, max_size=5).map("".join), st.lists(st.text("ab-_1\né", max_size=6)))
@settings(deadline=None, max_examples=300)
def test_runs_of_characters_match_as_in_re2(pattern: str, texts: list[str]) -> None:
    compiled, fastest = re2.compile(pattern), regex.matcher(pattern)
    for text in texts:
        assert bool(fastest(text)) == (compiled.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "is_flat"),
    [("a+b", True), ("^a*b$", True), ("a*a", False), ("a?b?a", False), ("(ab)+", False)],
)
def test_patterns_that_never_go_back(pattern: str, is_flat: bool) -> None:
    match = flat_patterns.full_match(regex.read(pattern), regex.START, regex.END)
    assert (match is not None) == is_flat


signs = st.text("ab0_-.^$|*+?[]\\dwAz ~,}&:=<\0é\n", max_size=8)


@pytest.mark.slow
@given(signs, st.lists(st.text("ab-_0\né", max_size=5), max_size=8))
@settings(deadline=None, max_examples=1000)
def test_re2_accepts_what_is_matched_without_it(pattern: str, texts: list[str]) -> None:
    try:
        compiled = re2.compile(pattern, regex._options(re2))
    except re2.error:
        with pytest.raises(ValueError, match="pattern"):
            regex.matcher(pattern)
    else:
        match = regex.matcher(pattern)
        for text in texts:
            assert bool(match(text)) == (compiled.fullmatch(text) is not None), text


def test_re2_is_imported_for_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "re2")
    regex.matcher.cache_clear()
    assert regex.matcher("[a-z]+[0-9]+x")("ab12x")
    assert "re2" not in sys.modules
    assert regex.matcher("(a|ab)(c|bcd)")("abcd")
    assert "re2" in sys.modules


def test_a_pattern_that_is_too_large_for_a_set() -> None:
    match = regex.matcher(r"(?:a|\pL{200}|\pN{200})*b")
    for text, expected in (("ab", True), ("x" * 400 + "b", True), ("x" * 300 + "b", False)):
        assert bool(match(text)) == expected


@given(patterns, st.lists(st.text("ab-_1\né", max_size=6), min_size=10, max_size=10))
@settings(deadline=None, max_examples=300)
def test_without_re2_searches_find_the_same(pattern: str, texts: list[str]) -> None:
    search_of, own = regex.searcher(pattern), Automaton(regex.read(pattern))
    for text in texts:
        search = search_of(text)
        for start in range(len(text) + 1):
            assert own.search(text, start) == search(start), (text, start)


# -- in programs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_strings_pass_through_programs(backend: str) -> None:
    x = strings("a b", "c")
    joined = sardonyx.run_op("StringConcat", x, strings("!"), backend=backend)
    assert joined.tolist() == ["a b!", "c!"]
    parts, counts = sardonyx.run_op("StringSplit", x, outputs=2, backend=backend)
    assert parts.tolist() == [["a", "b"], ["c", ""]]
    assert np.asarray(counts).tolist() == [2, 1]
    kept = sardonyx.run_op("StringNormalizer", x, stopwords=["C"], backend=backend)
    assert kept.tolist() == ["a b"]
    matched = sardonyx.run_op("RegexFullMatch", x, pattern="[a-c]", backend=backend)
    assert np.asarray(matched).tolist() == [False, True]
