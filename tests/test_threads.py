"""One model in many threads: no call waits for another's compiler, none sees half a change."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sardonyx
from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable
from sardonyx.backends.jax.backend import JaxBackend
from tests.support.onnx_builders import model, node, value, weight
from tests.support.stress import Stress

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(9, dtype=np.float32).reshape(3, 3)


@pytest.mark.slow
def test_anything_at_once(xp: Backend) -> None:
    done = Stress(xp, seconds=4, threads=8).run()
    assert not done.errors, done.errors[:5]
    assert done.counts["_call"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_anything_at_once_for_longer(name: str) -> None:
    done = Stress(find(name), seconds=30, threads=16).run()
    assert not done.errors, done.errors[:5]


@pytest.mark.slow
def test_a_call_sees_one_version_of_the_params() -> None:
    """What is prepared of a weight belongs to the same version as the weight itself."""
    proto = model(
        [
            node("Exp", ["w"], ["prepared"]),
            node("Log", ["prepared"], ["same"]),
            node("MatMul", ["x", "same"], ["a"]),
            node("MatMul", ["x", "w"], ["b"]),
            node("Sub", ["a", "b"], ["difference"]),
            node("Add", ["bias", "bias"], ["twice"]),
            node("Sub", ["twice", "bias"], ["once"]),
            node("Add", ["difference", "once"], ["y"]),
        ],
        [value("x", [2, 3])],
        ["y"],
        [weight("w", np.zeros((3, 3), np.float32)), weight("bias", np.zeros(3, np.float32))],
    )
    loaded = sardonyx.load(proto, backend="jax")
    loaded(X)
    end, errors = time.monotonic() + 4, []

    def replace() -> None:
        for turn in range(10**9):
            loaded.params["w"] = np.full((3, 3), turn % 5, np.float32)
            if time.monotonic() > end:
                return

    def call() -> None:
        while time.monotonic() < end:
            try:
                np.testing.assert_allclose(loaded(X), np.zeros((2, 3)), atol=1e-4)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for work in (replace, call, call, call)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]


class MeetingJax(JaxBackend):
    """JAX, whose compilations wait until as many of them are under way at the same time."""

    meeting: threading.Barrier

    def compile(self, *arguments: Any, **options: Any) -> Executable:
        self.meeting.wait(timeout=60)
        return super().compile(*arguments, **options)


def test_first_calls_of_different_shapes_compile_at_the_same_time() -> None:
    backend = MeetingJax()
    backend.meeting = threading.Barrier(3)
    proto = model([node("Mul", ["x", "x"], ["y"])], [value("x", ["n", 3])], ["y"])
    loaded = sardonyx.load(proto, backend=backend)
    inputs = [np.full((n, 3), n, np.float32) for n in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        for x, y in zip(inputs, pool.map(loaded, inputs), strict=True):
            np.testing.assert_array_equal(y, x * x)
    assert loaded.stats().compiles == 3


def test_first_calls_of_one_shape_compile_once() -> None:
    proto = model([node("Exp", ["x"], ["y"])], [value("x", ["n", 3])], ["y"])
    loaded = sardonyx.load(proto, backend="jax")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(loaded, [X] * 8))
    for y in results:
        np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)
    assert (loaded.stats().compiles, loaded.stats().calls) == (1, 8)


class PatientJax(JaxBackend):
    """JAX, whose compiler starts when it is let."""

    start: threading.Event

    def compile(self, *arguments: Any, **options: Any) -> Executable:
        assert self.start.wait(timeout=60)
        return super().compile(*arguments, **options)


def test_compiling_in_the_background_blocks_nobody() -> None:
    backend = PatientJax()
    backend.start = threading.Event()
    proto = model([node("Exp", ["x"], ["y"])], [value("x", ["n", 3])], ["y"])
    loaded = sardonyx.load(proto, backend=backend)
    futures = loaded.compile({"x": (1, 3)}, {"x": (2, 3)}, background=True)
    assert not any(future.done() for future in futures)
    backend.start.set()
    assert [len(future.result().segments) for future in futures] == [1, 1]
    np.testing.assert_allclose(loaded(X), np.exp(X), rtol=1e-6)
    assert loaded.stats().compiles == 2


def test_what_cannot_be_compiled_says_so_in_its_future() -> None:
    proto = model([node("Exp", ["x"], ["y"])], [value("x", ["n", 3])], ["y"])
    loaded = sardonyx.load(proto, backend="jax")
    (future,) = loaded.compile({"x": (1, 4)}, background=True)
    assert isinstance(future.exception(), sardonyx.InvalidInput)


def test_an_input_may_be_written_to_after_the_call() -> None:
    """JAX computes on after the call has returned, and borrows NumPy's memory meanwhile."""
    steps = [node("MatMul", ["y0", "w"], ["y1"])]
    steps += [node("MatMul", [f"y{i}", "w"], [f"y{i + 1}"]) for i in range(1, 12)]
    size = 700
    proto = model(
        [node("Add", ["x", "other"], ["y0"]), *steps, node("Add", ["y12", "x"], ["y"])],
        [value("x", [size, size]), value("other", [size, size])],
        ["y"],
        [weight("w", np.eye(size, dtype=np.float32))],
    )
    loaded = sardonyx.load(proto, backend="jax")
    other = jnp.zeros((size, size), jnp.float32)
    for turn in range(3):
        x = np.full((size, size), turn + 1, np.float32)
        y = loaded(x, other)
        x[...] = -1000
        np.testing.assert_array_equal(np.asarray(y), np.full((size, size), 2 * turn + 2))


def test_a_replaced_param_is_a_copy(xp: Backend) -> None:
    proto = model([node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", W)])
    loaded = sardonyx.load(proto, backend=xp)
    mine = np.ones((3, 3), np.float32)
    loaded.params["w"] = mine
    mine[...] = 7
    np.testing.assert_array_equal(np.asarray(loaded(W)), W)


@pytest.mark.slow
def test_statistics_are_told_while_forms_are_made() -> None:
    names = [f"d{i}" for i in range(8)]
    steps = [
        node("Add", ["x" if i == 0 else f"y{i}", n], [f"y{i + 1}"]) for i, n in enumerate(names)
    ]
    proto = model(
        steps,
        [value("x", [3]), *(value(name, [3]) for name in names)],
        ["y8"],
        [weight(name, np.zeros(3, np.float32)) for name in names],
    )
    loaded = sardonyx.load(proto, backend="numpy")
    x, done = np.ones(3, np.float32), threading.Event()

    def ask() -> int:
        asked = 0
        while not done.is_set():
            asked += loaded.stats().calls >= 0
        return asked

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        for chosen in range(256):
            given = {name: x for i, name in enumerate(names) if chosen >> i & 1}
            np.testing.assert_array_equal(loaded(x, **given), x * (1 + len(given)))
        done.set()
        assert all(future.result() for future in asking)
    assert loaded.stats().calls == 256
