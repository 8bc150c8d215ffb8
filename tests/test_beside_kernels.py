"""What a segment does beside kernels is tried out where its price does not decide."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.executable import KernelCalls, Spec
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.onednn import HostKernels
from sardonyx.graph.programs import beside_kernels, compiler
from sardonyx.graph.programs.beside_kernels import MOST_TIMES, BesideKernels
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_buckets import normal
from tests.test_kernels_for_good import called, multiplying

FLOATS = Spec((64, 64), np.dtype(np.float32))


def of(replay: Callable[..., Any], xp: Any = None) -> BesideKernels:
    xp = xp or Interpreter(lambda: False, HostKernels() if onednn.is_loaded() else None)
    return BesideKernels(replay, [FLOATS], 1, xp)


def sums(xp: Any, x: Any) -> list[Any]:
    for _ in range(50):
        x = xp.add(x, x)
    return [x]


def is_tried(segment: BesideKernels) -> bool:
    return "_tried" in vars(segment)


def test_a_price_far_from_the_limit_decides() -> None:
    segment = of(sums)
    assert segment.written is not None
    price = segment.written.price * 1e-6
    assert segment.takes_at_most(2 * MOST_TIMES * price)
    assert not segment.takes_at_most(price / 2)
    assert not is_tried(segment)


def test_a_trial_decides_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = of(sums)
    assert segment.written is not None
    price = segment.written.price * 1e-6
    segment.takes_at_most(2 * price)
    assert is_tried(segment)
    assert segment._tried > 0
    for takes, fits in ((3 * price, False), (price, True)):
        monkeypatch.setitem(vars(segment), "_tried", takes)
        assert segment.takes_at_most(2 * price) == fits


def test_the_least_of_the_trials_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 5.0, 10.0, 11.0, 20.0, 27.0])
    monkeypatch.setattr(beside_kernels.time, "thread_time", lambda: next(times))
    segment = of(sums)
    assert segment.written is not None
    assert segment._tried == 2.0


def test_what_cannot_be_noted_takes_too_long() -> None:
    segment = BesideKernels(sums, [FLOATS], 1, None)
    assert segment.written is None
    assert not segment.takes_at_most(1e3)


def test_what_fails_for_zeros_is_as_fast_as_its_price_says() -> None:
    def failing(*_: Any) -> Any:
        raise ValueError

    segment = of(sums)
    assert segment.written is not None
    vars(segment)["written"] = replace(segment.written, run=failing)
    assert segment._tried == 0.0
    assert segment.takes_at_most(2 * segment.written.price * 1e-6)


@NEEDS_ONEDNN
def test_kernels_of_one_thread_are_idle_alone() -> None:
    assert onednn.loaded.shared_library() is not None
    kernels, x = HostKernels(), normal(96, 64)
    wanted = kernels.softmax(x, or_zero=False)
    found: list[Any] = []

    def compute() -> None:
        found.append(kernels.softmax(x, or_zero=False))

    with kernels.idle():
        before = np.array(x)
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        idle = kernels.softmax(x, or_zero=False)
    assert_array_equal(found[0], wanted)
    assert_array_equal(x, before)
    assert idle.shape == wanted.shape
    assert_array_equal(kernels.softmax(x, or_zero=False), wanted)


@NEEDS_ONEDNN
def test_joined_kernels_are_idle_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were planned before, and are called past the notes."""
    kernels = HostKernels()

    def function(x: Any) -> Any:
        y = kernels.softmax(x, or_zero=False)
        return [kernels.softmax(y, or_zero=False)]

    def refuse() -> None:
        raise AssertionError

    joined, x = kernels.in_one_call(KernelCalls(function, 0)), normal(96, 64)
    (wanted,) = joined(x)
    with kernels.idle(), monkeypatch.context() as patched:
        patched.setattr(onednn.loaded, "_kernels", refuse)
        joined(x)
    assert_array_equal(joined(x)[0], wanted)


@NEEDS_ONEDNN
@pytest.mark.parametrize("takes", [0.0, 1e3], ids=["little", "much"])
def test_the_trial_says_what_stays(takes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, results are the same; and so are those after a trial that fails."""
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", 1e3)
    monkeypatch.setattr(beside_kernels, "MOST_TIMES", 1e9)
    monkeypatch.setattr(BesideKernels, "_tried", takes)
    loaded = multiplying()
    x = normal(8, 32, 6)
    result = called(loaded, x)
    assert_allclose(result, np.maximum(x @ np.asarray(loaded.params["w"]), 0), rtol=1e-5, atol=1e-5)
    stays = takes == 0.0
    assert (loaded.stats().compiles, loaded.stats().written_out) == (not stays, stays)


@NEEDS_ONEDNN
def test_a_trial_beside_calls_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", 1e3)
    monkeypatch.setattr(beside_kernels, "MOST_TIMES", 1e9)
    monkeypatch.setattr(beside_kernels, "TRIALS", 200)
    body = "m = MatMul(x, w) n = Softmax(m) t = Tanh(n) y = Relu(t)"
    loaded: sardonyx.Model = multiplying(body)
    x = normal(8, 32, 6)
    wanted = loaded(x)
    for _ in range(300):
        assert_allclose(loaded(x), wanted, rtol=1e-5, atol=1e-6)
    wait_for_background()
