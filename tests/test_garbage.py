"""Collections of garbage: rare while a model is loaded or traced, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import sardonyx
from sardonyx import garbage
from sardonyx.garbage import LEAST, RareCollections
from tests.test_buckets import model, normal


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_until_the_last_thread_leaves() -> None:
    gc.set_threshold(700, 10, 10)
    rare = RareCollections()
    with rare:
        with rare:
            assert gc.get_threshold() == (LEAST, 10, 10)
        assert gc.get_threshold() == (LEAST, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, LEAST + 1])
def test_what_the_program_has_chosen_stays(first: int) -> None:
    """With 0 nothing is collected, and rarer collections than these are welcome."""
    gc.set_threshold(first, 5, 5)
    with RareCollections():
        assert gc.get_threshold() == (first, 5, 5)
    assert gc.get_threshold() == (first, 5, 5)


def test_what_the_program_chooses_meanwhile_stays() -> None:
    with RareCollections():
        gc.set_threshold(123, 4, 4)
    assert gc.get_threshold() == (123, 4, 4)


def test_an_error_leaves_the_threshold_as_it_was() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), RareCollections():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


def collections_of_a_first_call() -> int:
    """Load a model and call it; return how often the collector came."""
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(phase)

    nodes = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(500))
    proto, x = model(f"v0 = Exp(x) {nodes} y = Neg(v500)"), normal(2, 9, 6)
    gc.collect()
    gc.callbacks.append(note)
    try:
        sardonyx.load(proto, backend="numpy", compile="never")(x)
    finally:
        gc.callbacks.remove(note)
    return len(seen)


@pytest.mark.slow
def test_the_collector_comes_rarely_in_a_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    collections_of_a_first_call()  # Imports what it needs.
    gc.set_threshold(100, 1000, 1000)
    rare = collections_of_a_first_call()
    monkeypatch.setattr(garbage, "LEAST", 1)
    assert 3 * rare < collections_of_a_first_call()
    assert gc.get_threshold() == (100, 1000, 1000)
