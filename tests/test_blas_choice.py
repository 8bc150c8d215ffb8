"""Calls of decoders get one thread of NumPy's BLAS where that takes less time."""

from __future__ import annotations

import time

import pytest

from sardonyx.backends import blas_choice
from sardonyx.backends.blas_choice import BlasChoice


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def calls(choice: BlasChoice, clock: list[float], alone: float, all_threads: float) -> list[bool]:
    """Make calls for ten seconds; return the choices."""
    chosen, end = [], clock[0] + 10
    while clock[0] < end:
        is_alone = choice.begin()
        seconds = alone if is_alone else all_threads
        clock[0] += seconds
        choice.note(seconds, is_alone=is_alone)
        chosen.append(is_alone)
    return chosen


def test_all_threads_are_used_where_they_are_faster(clock: list[float]) -> None:
    chosen = calls(BlasChoice(), clock, alone=0.02, all_threads=0.01)
    # One trial a second; the first one comes earlier.
    assert 8 <= sum(chosen) <= 12


def test_one_thread_is_used_while_others_stall(clock: list[float]) -> None:
    choice = BlasChoice()
    chosen = calls(choice, clock, alone=0.02, all_threads=0.4)
    assert not any(chosen[:1])
    # A trial of all threads takes 20 times its time at least until the next one.
    assert sum(not each for each in chosen) <= 4
    # And all are used again when they are faster.
    chosen = calls(choice, clock, alone=0.02, all_threads=0.01)
    chosen = calls(choice, clock, alone=0.02, all_threads=0.01)
    assert sum(chosen) <= 12


def test_the_scope_limits_the_threads() -> None:
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    def most() -> int:
        return max(
            (e["num_threads"] for e in threadpool_info() if e["user_api"] == "blas"), default=1
        )

    before = most()
    with blas_choice.scope(is_alone=True):
        assert most() == 1
    with blas_choice.scope(is_alone=False):
        assert most() == before
