"""Sets of characters are those of a list of all members."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ops.characters import Characters

LETTERS = "abcdefgh"
bounds = st.lists(st.tuples(*[st.sampled_from(LETTERS)] * 2).map(sorted).map("".join), max_size=4)
sets = bounds.map("".join).map(Characters.of)


@given(sets, sets)
def test_sets_and_their_members(one: Characters, other: Characters) -> None:
    for char in LETTERS:
        assert (one | other)(char) == (one(char) or other(char))
        assert (~one)(char) != one(char)
        assert bool(re.fullmatch(one.pattern, char)) == one(char)
    assert one.meets(other) == any(one(char) and other(char) for char in LETTERS)
    assert ~~one == one
    assert not one.meets(~one)


@pytest.mark.parametrize("char", ["\0", "\n", "]", "-", "\\", "^", "é", "😀", chr(sys.maxunicode)])
def test_special_characters(char: str) -> None:
    alone = Characters.of(char * 2)
    assert alone(char)
    assert not (~alone)(char)
    assert re.fullmatch(alone.pattern, char)
    assert not re.fullmatch((~alone).pattern, char)


def test_nothing_and_everything() -> None:
    nothing = Characters(())
    assert not nothing("")
    assert not (~nothing)("")
    assert (~nothing)("\0")
    assert not re.fullmatch(nothing.pattern, "a")
    assert re.fullmatch((~nothing).pattern, "\n")
