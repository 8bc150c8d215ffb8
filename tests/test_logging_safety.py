"""No message can harm a call: hostile names and handlers, threads, processes and locks."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

import sardonyx
from sardonyx.logs import Log, Once, postponed
from tests.support.logged import (
    BACKENDS,
    FOREVER,
    Records,
    X,
    doubled,
    in_subprocess,
    listening,
    product,
    reshaped,
)
from tests.support.onnx_builders import INT64, model, node, value, weight


@pytest.fixture
def log() -> Iterator[Records]:
    with listening(Records()) as records:
        yield records


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_of_a_model_are_escaped(backend: str, log: Records) -> None:
    name = "x\x1b[2J\nWARNING:root:forged" + "y" * 10_000
    loaded = sardonyx.load(doubled(name=name), backend=backend, compile="now")
    loaded(X)
    loaded(X[:1])
    texts = log.texts()
    assert any(r"x\x1b[2J\nWARNING:root:forged" in text for text in texts)
    for text in texts:
        assert text.isprintable()
        assert len(text) < 10_000


def test_records_hold_no_arrays(log: Records, tmp_path: Path) -> None:
    loaded = sardonyx.load(reshaped(), backend="jax", cache=tmp_path)
    for size in ([6], [-1]):
        loaded(X, np.array(size))
    assert log.records
    for record in log.records:
        assert record.exc_info is None
        assert all(type(each) in (str, int, float) for each in record.args or ())
        assert pickle.loads(pickle.dumps(record)).getMessage() == record.getMessage()


def test_a_text_that_cannot_be_composed(log: Records) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise KeyError("hostile")

    def hostile() -> Any:
        return Hostile()

    Log("tracing").warning("A text: %s.", hostile, reason=hostile)
    (text,) = log.texts("tracing")
    assert text == "A text: unknown, for its text raises KeyError."


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(f"no space for {record.msg}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_handler_that_raises_fails_no_call(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(Raising()):
        loaded = sardonyx.load(doubled(), backend=backend, compile="now")
        np.testing.assert_array_equal(loaded(X), 2 * X)
    assert "RuntimeError: no space for" in capsys.readouterr().err


class Calling(logging.Handler):
    """Calls the model in another thread for each record, and waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.model: Callable[..., Any] | None = None
        self.arguments: tuple[Any, ...] = ()
        self.calls = 0
        self.stuck: list[str] = []
        self.active = threading.local()

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the handler's own lock, in which a handler must not wait for other threads.
        called = self.model
        if called is None or self.stuck or getattr(self.active, "is_on", False):
            return True
        done = threading.Event()

        def call() -> None:
            self.active.is_on = True
            try:
                called(*self.arguments)
            finally:
                done.set()

        threading.Thread(target=call, daemon=True).start()
        self.calls += 1
        if not done.wait(FOREVER / 4):
            self.stuck.append(f"{record.name}: {record.getMessage()}")
        return True


@pytest.mark.parametrize("mode", ["now", "background"])
@pytest.mark.parametrize("buckets", [None, {"n": [4, 8]}, "auto"], ids=["plain", "sizes", "auto"])
def test_no_lock_is_held_while_a_handler_runs(mode: str, buckets: Any, tmp_path: Path) -> None:
    """A handler that waits for a call in another thread would wait forever."""
    with listening(Calling()) as handler:
        options: dict[str, Any] = {"compile": mode, "buckets": buckets, "max_signatures": 2}
        loaded = sardonyx.load(product(), backend="jax", cache=tmp_path, **options)
        handler.model = loaded
        for rows in (2, 3, 5, 6, 2, 2):
            handler.arguments = (np.ones((rows, 3), np.float32),)
            loaded(*handler.arguments)
        loaded.params["w"] = np.full((3, 3), np.inf, np.float32)
        loaded(*handler.arguments)
        loaded.compile({"x": (9, 3)})
        loaded.release()
        loaded(*handler.arguments)
        assert handler.calls > 5
        assert not handler.stuck


def test_no_lock_is_held_where_values_are_read_or_forms_made() -> None:
    proto = model(
        [node("Reshape", ["x", "shape"], ["r"]), node("Add", ["r", "w"], ["y"])],
        ["x", value("shape", [1], INT64), "w"],
        ["y"],
        [weight("w", np.ones(1, np.float32))],
    )
    with listening(Calling()) as handler:
        loaded = sardonyx.load(proto, backend="jax", compile="now")
        handler.model = partial(loaded, w=np.zeros(1, np.float32))
        for size in (6, -1):
            handler.arguments = (X, np.array([size]))
            handler.model(*handler.arguments)
            loaded(*handler.arguments)
        loaded.run(["r"], {"x": X, "shape": np.array([6])})
        assert handler.calls > 5
        assert not handler.stuck


class Same(logging.Handler):
    """Calls the model in the same thread."""

    def __init__(self) -> None:
        super().__init__()
        self.model: Callable[..., Any] | None = None
        self.results: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.model is not None:
            self.results.append(self.model(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_handler_may_call_the_model(backend: str) -> None:
    with listening(Same()) as handler:
        loaded = sardonyx.load(product(), backend=backend)
        handler.model = loaded
        for rows in (1, 2, 3):
            loaded(np.ones((rows, 3), np.float32))
        assert handler.results
        for result in handler.results:
            np.testing.assert_array_equal(result, X)


def test_eight_threads(log: Records) -> None:
    loaded = sardonyx.load(product(), backend="jax", buckets=None, compile="now")

    def call(number: int) -> None:
        rows = number % 4 + 1
        np.testing.assert_array_equal(loaded(np.ones((rows, 3), np.float32)), np.ones((rows, 3)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(64)))
    for start in ("New signature", "Traced"):
        assert len([text for text in log.texts("tracing") if text.startswith(start)]) == 4
    assert len([text for text in log.texts("compiling") if text.startswith("Compiled")]) == 4


def test_messages_of_threads_that_outlive_a_block_are_not_lost(log: Records) -> None:
    with postponed():
        late = copy_context()
        late.run(Log("tracing").info, "in time")
        assert not log.records
    late.run(Log("tracing").info, "late")

    def locked() -> int:
        with postponed():
            Log("tracing").info("later")
            return len(log.records)

    assert late.run(locked) == 2
    assert log.texts("tracing") == ["in time", "late", "later"]


def test_a_call_that_fails_says_what_happened_before(log: Records) -> None:
    def fail() -> None:
        with postponed():
            Log("tracing").info("before")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert log.texts("tracing") == ["before"]


def test_once_forgets_old_events() -> None:
    once = Once(2)
    assert [once.is_new(event) for event in (1, 1, 2, 1, 3)] == [True, False, True, False, True]
    once.forget(3)
    assert once.is_new(3)


def test_pickled_models_log_too(log: Records) -> None:
    loaded = sardonyx.load(doubled(), backend="numpy")
    loaded(X)
    log.records.clear()
    copied = pickle.loads(pickle.dumps(loaded))
    copied(X)
    assert "there is no other" in log.one("tracing", "New signature").getMessage()


def _called(loaded: Any) -> int:
    logging.basicConfig(level=logging.CRITICAL)
    records = Records()
    with listening(records):
        loaded(X)
    return len(records.records)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    loaded = sardonyx.load(doubled(), backend="numpy")
    if method == "fork":
        code = (
            "import logging, os, sys, numpy as np, sardonyx\n"
            "from tests.test_logging_safety import X, _called, doubled\n"
            "loaded = sardonyx.load(doubled(), backend='numpy')\n"
            "loaded(X[:1])\n"
            "child = os.fork()\n"
            "if not child: os._exit(_called(loaded))\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        assert in_subprocess(code).returncode == 2
        return
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(_called, (loaded,)) == 2


def test_warnings_as_errors() -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.DEBUG)\n"
        "import numpy as np, sardonyx\n"
        "x = np.zeros((1, 8, 48), np.float32)\n"
        "print(sardonyx.load('examples/encoder.onnx', backend='numpy')(x).shape)\n"
    )
    done = in_subprocess(code, "-W", "error")
    assert done.stdout == "(1, 8, 48)\n", done.stderr
    assert "INFO:sardonyx.tracing:New signature" in done.stderr


def test_models_are_freed_as_soon_as_nobody_uses_them() -> None:
    """What logs an eviction must not hold the model."""
    loaded = sardonyx.load(doubled(), backend="numpy", max_signatures=1)
    for rows in (1, 2):
        loaded(X[:rows])
    reference = ref(loaded._plain)
    del loaded
    assert reference() is None
