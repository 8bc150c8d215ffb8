"""The builders of `sardonyx.display`: what they escape, and how large the results become."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from sardonyx.display.bars import bar, key, stacked
from sardonyx.display.folding import fold
from sardonyx.display.markup import LONGEST_DISPLAY, code, displayed, element, escaped, muted
from sardonyx.display.scopes import grouped, scope_tree
from sardonyx.display.style import STYLE
from sardonyx.display.tables import LONGEST_TABLE, facts, table
from sardonyx.display.text import WIDTH, aligned, at_most
from sardonyx.display.units import bytes_text

HOSTILE = "<script>alert('1')</script>\"&\x1b[2J\u202e"


class Tags(HTMLParser):
    """Collects the names of the tags of a page, and checks that they close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "piece",
    [
        escaped(HOSTILE),
        element("span", HOSTILE, title=HOSTILE),
        muted(HOSTILE),
        code(HOSTILE),
        table([HOSTILE], [[HOSTILE]]),
        facts([(HOSTILE, HOSTILE)]),
        fold(HOSTILE, HOSTILE, note=HOSTILE),
        stacked([(HOSTILE, 1)]),
        key(0, HOSTILE),
        scope_tree(grouped([(f"{HOSTILE}/{i}/{HOSTILE}", HOSTILE) for i in range(3)]),
                   lambda entries: HOSTILE, lambda name, entry: name + entry),
    ],
)  # fmt: skip
def test_text_is_escaped(piece: str) -> None:
    page = Tags(displayed(HOSTILE, piece))
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert "<script>alert('1')" in page.text


def test_long_names_are_shortened() -> None:
    assert len(escaped("x" * 10**6)) < 250


def test_every_rule_holds_in_the_box_only() -> None:
    selectors = re.findall(r"(?:^|\})([^{]+)\{", STYLE)
    assert len(selectors) > 10
    assert all(s.startswith(".sardonyx.sardonyx") and "," not in s for s in selectors)


def test_a_table_takes_no_more_rows_than_it_shows() -> None:
    taken = []

    def rows() -> object:
        for i in range(10**9):
            taken.append(i)
            yield i, i * i

    text = table(["a", "b"], rows(), total=10**9, most=40)
    assert taken == list(range(40))
    assert "… 999,999,960 more" in text


def test_a_table_of_long_cells_is_bounded() -> None:
    text = table(["a"], [["<" * 200]] * 5000, most=5000)
    assert len(text) < LONGEST_TABLE + 1000
    assert re.search("… 4,[0-9]{3} more", text)


def test_what_is_too_long_is_left_out_and_said() -> None:
    part = element("p", *["x" * 150] * 800)
    text = displayed("title", part, part, "the end")
    assert len(text) < LONGEST_DISPLAY
    assert "too long to be shown" in text
    assert "the end" in text


def test_a_tree_of_many_names_shows_the_outer_scopes() -> None:
    names = [f"/a/layer.{i % 20}/part.{i % 60}/MatMul_{i}" for i in range(50_000)]
    tree = grouped((name, 1) for name in names)
    text = scope_tree(tree, lambda entries: f"{len(entries)} nodes", lambda name, entry: name)
    assert len(text) < 60_000
    assert [f">layer.{i} <" in text for i in range(20)] == [True] * 20
    assert "2500 nodes" in text
    Tags(displayed("tree", text))


@pytest.mark.parametrize("name", ["", "/", "...", "a/", "/a", "0", "1/2/3", "a/" * 5000])
def test_names_of_any_form_are_in_the_tree(name: str) -> None:
    tree = grouped([(name, 7), ("other/one", 8), ("other/two", 9)])
    assert sorted(tree.all_entries()) == [7, 8, 9]
    Tags(displayed("tree", scope_tree(tree, lambda entries: "", lambda n, e: f"{n}{e}")))


@pytest.mark.parametrize(("share", "width"), [(-1, "0.0"), (2, "100.0"), (float("nan"), "0.0")])
def test_bars_stay_in_their_track(share: float, width: str) -> None:
    assert f"width:{width}%" in bar(share)


def test_empty_tables_bars_and_trees() -> None:
    empty = [table(["a"], []), facts([]), stacked([]), stacked([("a", 0)])]
    empty.append(scope_tree(grouped([]), lambda entries: "", lambda name, entry: name))
    Tags(displayed("", *empty))
    assert aligned([]) == []
    assert at_most([], 3) == ""


def test_lines_of_text_are_bounded() -> None:
    lines = aligned([(HOSTILE, "x" * 5000, 3), ("a", "b", 1000)], numbers=[2])
    assert all(len(line) <= WIDTH and line.isprintable() for line in lines)
    assert lines[1].endswith("1000")


def test_sizes_have_three_digits() -> None:
    assert [bytes_text(n) for n in (999, 1000, 999_499, 999_500, 10**30)] == [
        "999 B", "1 kB", "999 kB", "1 MB", "1e+12 EB"
    ]  # fmt: skip
