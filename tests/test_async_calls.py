"""`await model.async_call(...)`: calls beside an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sardonyx
import sardonyx.types
from sardonyx import InvalidInput, Model
from sardonyx.backends import processors
from tests.support.onnx_builders import model, node, value
from tests.support.raises import refused

SQUARE = model([node("Mul", ["x", "x"], ["y"])], [value("x", ["n"])], ["y"])
X = np.arange(3, dtype=np.float32)


@sardonyx.op(domain="mine")
def Blocked(xp: sardonyx.types.Backend, x: sardonyx.types.Array) -> sardonyx.types.Array:
    """Waits until the test lets it go on."""
    CALLS.append((threading.current_thread().name, VARIABLE.get()))
    assert GO_ON.wait(30)
    return x * 1


CALLS: list[tuple[str, str]] = []
GO_ON = threading.Event()
VARIABLE = contextvars.ContextVar("VARIABLE", default="none")


@pytest.fixture
def blocked() -> Model:
    CALLS.clear()
    GO_ON.clear()
    proto = model(
        [node("Blocked", ["x"], ["y"], domain="mine")], [value("x", ["n"])], ["y"], mine=1
    )
    loaded = sardonyx.load(proto, backend="numpy", ops=[Blocked])
    GO_ON.set()
    loaded(X)  # Other calls wait while the first one is traced.
    CALLS.clear()
    GO_ON.clear()
    return loaded


def call_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("sardonyx-call")}


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        gc.collect()
        time.sleep(0.01)


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_it_returns_what_a_call_returns(backend: str) -> None:
    square, y = sardonyx.load(SQUARE, backend=backend), np.empty(3, np.float32)

    async def calls() -> list[Any]:
        return await asyncio.gather(
            square.async_call(X),
            square.async_call(x=X),
            square.bind(writable=True).async_call(X),
            square.async_call(X, out=y),
        )

    found = asyncio.run(calls())
    for each in found:
        assert_array_equal(each, X * X)
    assert found[2].flags.writeable
    assert found[3] is y


def test_errors_are_those_of_the_call() -> None:
    square = sardonyx.load(SQUARE, backend="numpy")
    with refused(InvalidInput, "no input 'z'"):
        asyncio.run(square.async_call(z=X))


def test_the_loop_is_free_and_few_calls_run_at_a_time(blocked: Model) -> None:
    most = processors.available()

    async def calls() -> None:
        tasks = [asyncio.ensure_future(blocked.async_call(X)) for _ in range(most + 3)]
        while len(CALLS) < most:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(CALLS) == most
        GO_ON.set()
        assert len(await asyncio.gather(*tasks)) == most + 3

    asyncio.run(calls())
    assert len(CALLS) == most + 3
    assert len({name for name, _ in CALLS}) <= most


def test_a_call_that_waits_can_be_cancelled(blocked: Model) -> None:
    most = processors.available()

    async def calls() -> None:
        tasks = [asyncio.ensure_future(blocked.async_call(X)) for _ in range(most + 1)]
        while len(CALLS) < most:
            await asyncio.sleep(0.01)
        for task in (tasks[0], tasks[-1]):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(blocked.async_call(X), 0.05)
        GO_ON.set()
        await asyncio.gather(*tasks[1:-1])
        assert_array_equal(await blocked.async_call(X), X)

    asyncio.run(calls())
    assert len(CALLS) == most + 1


def test_context_variables_are_the_callers(blocked: Model) -> None:
    GO_ON.set()

    async def named(name: str) -> None:
        VARIABLE.set(name)
        await blocked.async_call(X)
        assert VARIABLE.get() == name

    async def calls() -> None:
        await asyncio.gather(named("a"), named("b"))

    asyncio.run(calls())
    assert {name for _, name in CALLS} == {"a", "b"}


def test_loops_of_several_threads_share_a_model() -> None:
    square = sardonyx.load(SQUARE, backend="jax")

    async def calls(number: int) -> None:
        for _ in range(5):
            found = await asyncio.gather(*(square.async_call(X + i + number) for i in range(4)))
            for i, each in enumerate(found):
                assert_array_equal(each, (X + i + number) ** 2)

    failed: list[BaseException] = []

    def loop(number: int) -> None:
        try:
            asyncio.run(calls(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["release", "gc"])
def test_threads_end_with_the_model(ended: str) -> None:
    before = call_threads()
    square = sardonyx.load(SQUARE, backend="numpy")
    asyncio.run(square.async_call(X))
    assert call_threads() - before
    if ended == "release":
        square.release()
        wait_until(lambda: not call_threads() - before)
        assert_array_equal(asyncio.run(square.async_call(X)), X * X)
    del square
    wait_until(lambda: not call_threads() - before)


@pytest.mark.slow
def test_calls_go_on_through_a_release() -> None:
    square = sardonyx.load(SQUARE, backend="numpy")

    async def calls() -> None:
        tasks = [asyncio.ensure_future(square.async_call(X)) for _ in range(50)]
        square.release()
        tasks += [asyncio.ensure_future(square.async_call(X)) for _ in range(50)]
        await asyncio.sleep(0)
        square.release()
        for found in await asyncio.gather(*tasks):
            assert_array_equal(found, X * X)

    asyncio.run(calls())


def test_copies_have_threads_of_their_own() -> None:
    square = sardonyx.load(SQUARE, backend="numpy")
    asyncio.run(square.async_call(X))
    for each in (square, square.bind(writable=True)):
        copied = pickle.loads(pickle.dumps(each))
        assert_array_equal(asyncio.run(copied.async_call(X)), X * X)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = (
        "import asyncio, os, sys\n"
        "import numpy as np, sardonyx\n"
        "model = sardonyx.load(sys.stdin.buffer.read(), backend='numpy')\n"
        "x = np.ones(3, np.float32)\n"
        "asyncio.run(model.async_call(x))\n"
        "child = os.fork()\n"
        "asyncio.run(asyncio.wait_for(model.async_call(x), 20))\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    run = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(run, input=SQUARE.SerializeToString(), check=True, timeout=60)


def test_exported_models_have_it_too() -> None:
    exported = sardonyx.load(sardonyx.export(SQUARE, platforms=["cpu"]).to_bytes())
    assert_array_equal(asyncio.run(exported.async_call(X)), X * X)
