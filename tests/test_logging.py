"""What sardonyx logs, that it is silent by default, and that no message can harm a call."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.graph.programs import compiler
from sardonyx.logs import Log, Once, postponed
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import INT64, model, node, value, weight

X = np.ones((2, 3), np.float32)
BACKENDS = ["numpy", "jax"]
# Seconds after which a call is taken to wait forever.
FOREVER = 60.0


def doubled(*, name: str = "x") -> onnx.ModelProto:
    return model([node("Add", [name, name], ["y"])], [value(name, ["n", 3])], ["y"])


def product() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    return model(nodes, [value("x", ["n", 3])], ["y"], [weight("w", np.eye(3, dtype=np.float32))])


def reshaped() -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("Neg", ["r"], ["y"])]
    return model(nodes, [value("x", ["n", 3]), value("shape", [1], INT64)], ["y"])


class Records(logging.Handler):
    """Collects records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, name: str = "", level: int = logging.DEBUG) -> list[str]:
        """The messages of a logger from a level on."""
        chosen = [r for r in self.records if r.levelno >= level]
        return [r.getMessage() for r in chosen if r.name.startswith(f"sardonyx.{name}")]

    def one(self, name: str, words: str) -> logging.LogRecord:
        """The only record of a logger with these words."""
        (record,) = [
            r for r in self.records if r.name == f"sardonyx.{name}" and words in r.getMessage()
        ]
        return record


def listening(handler: logging.Handler, level: int = logging.DEBUG) -> Iterator[Any]:
    logger = logging.getLogger("sardonyx")
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def log() -> Iterator[Records]:
    yield from listening(Records())


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_subprocess(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, *options, "-c", code]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run(run, env=env, capture_output=True, text=True, check=False)


# -- silence --------------------------------------------------------------------------------------

WARN = """
import logging, sys, tempfile
before = list(logging.root.handlers), logging.root.level, logging.lastResort
import sardonyx
assert (list(logging.root.handlers), logging.root.level, logging.lastResort) == before
logger = logging.getLogger("sardonyx")
assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
assert logger.level == logging.NOTSET and logger.propagate
if sys.argv[1:]:
    logging.basicConfig()
from sardonyx.backends.private_folder import PrivateFolder
folder = PrivateFolder(tempfile.mkdtemp() + "/cache")
name = "0" * 64 + ".kept"
folder.write(name, b"content")
path = folder.path / name
path.write_bytes(b"damaged" + path.read_bytes())
assert folder.read(name) is None
"""


def test_nothing_is_printed_by_default_not_even_warnings() -> None:
    done = in_subprocess(WARN)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_warnings_are_printed_where_logging_is_configured() -> None:
    run = [sys.executable, "-W", "error", "-c", WARN, "configured"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"WARNING:sardonyx.cache:Removed the entry .*\n", done.stderr)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_repeated_call_does_not_ask_a_logger(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = sardonyx.load(product(), backend=backend, compile="now")
    loaded(X)
    asked: list[int] = []
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda self, level: asked.append(level))
    loaded(X)
    assert not asked
    loaded(X[:1])
    assert asked


# -- tracing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_signature_says_what_differs(backend: str, log: Records) -> None:
    loaded = sardonyx.load(doubled(), backend=backend, buckets=None, compile="now")
    loaded(X)
    first = log.one("tracing", "New signature")
    assert first.levelno == logging.INFO
    assert first.getMessage() == (
        "New signature graph(x: float32[2, 3]): there is no other signature."
    )
    traced = log.one("tracing", "Traced and ran")
    assert f"graph(x: float32[2, 3]) on {backend}" in traced.getMessage()
    assert traced.steps == 1  # type: ignore[attr-defined]
    assert traced.seconds > 0  # type: ignore[attr-defined]
    log.records.clear()
    loaded(X)
    assert not log.records
    loaded(X[:1])
    second: Any = log.one("tracing", "New signature")
    assert second.signature == "x: float32[1, 3]"
    assert second.reason == "x is float32[1, 3] and was float32[2, 3] in the other signature"
    assert second.filename == "form.py"


def test_other_libraries_and_donated_inputs_differ_too(log: Records) -> None:
    jnp = pytest.importorskip("jax.numpy")
    loaded = sardonyx.load(doubled(), backend="jax", buckets=None)
    loaded(X)
    loaded(jnp.asarray(X))
    loaded.bind(donate="x")(jnp.asarray(X))
    _, jax, donated = [t for t in log.texts("tracing") if t.startswith("New signature")]
    assert "x is an array of jaxlib and was one of numpy in the other signature" in jax
    assert (
        "(x: float32[2, 3], donated x): it donates x in the closest of 2 other signatures"
        in donated
    )


def test_values_that_a_program_reads_are_named(log: Records) -> None:
    loaded = sardonyx.load(reshaped(), backend="numpy")
    loaded(X, np.array([6]))
    loaded(X, np.array([-1]))
    loaded(X, np.array([6]))
    read = log.one("tracing", "a new value that the program read")
    assert read.getMessage().endswith("read: shape = [-1].")
    assert len([text for text in log.texts("tracing") if text.startswith("Traced")]) == 2


def test_a_computed_value_that_is_read_has_the_name_of_the_graph(log: Records) -> None:
    nodes = [node("Abs", ["shape"], ["size"]), node("Expand", ["x", "size"], ["y"])]
    proto = model(nodes, [value("x", [1]), value("shape", [1], INT64)], ["y"])
    loaded = sardonyx.load(proto, backend="numpy")
    for size in (3, 4):
        loaded(X[:1, 0], np.array([size]))
    assert "size = [4]" in log.one("tracing", "a new value").getMessage()


def test_a_replaced_weight_that_tracing_reads(log: Records) -> None:
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    proto = model(nodes, [value("x", [2, 3])], ["y"], [weight("shape", np.array([6]))])
    loaded = sardonyx.load(proto, backend="numpy")
    loaded(X)
    loaded.params["shape"] = np.array([-1])
    loaded(X)
    assert "the weight shape, which" in log.one("tracing", "Replaced").getMessage()
    *_, again = [text for text in log.texts("tracing") if text.startswith("New signature")]
    assert again == (
        "New signature graph(x: float32[2, 3]): a weight that tracing read was replaced."
    )
    assert len([text for text in log.texts("tracing") if text.startswith("Traced")]) == 2


def test_an_evicted_signature_that_comes_back_is_a_warning(log: Records) -> None:
    loaded = sardonyx.load(doubled(), backend="numpy", max_signatures=1)
    loaded(X)
    loaded(X[:1])
    evicted = log.one("tracing", "Evicted")
    assert evicted.signature == "x: float32[2, 3]"  # type: ignore[attr-defined]
    assert not log.texts("tracing", logging.WARNING)
    loaded(X)
    (text,) = log.texts("tracing", logging.WARNING)
    assert text.endswith("it was evicted; raise max_signatures, or use buckets.")


def test_optional_inputs_inner_values_and_releases(log: Records) -> None:
    proto = model(
        [node("Add", ["x", "w"], ["s"]), node("Neg", ["s"], ["y"])],
        ["x", "w"],
        ["y"],
        [weight("w", np.ones(3, np.float32))],
    )
    loaded = sardonyx.load(proto, backend="numpy")
    for _ in range(2):
        loaded(X)
        loaded(X, w=np.zeros(3, np.float32))
        loaded.run(["s"], {"x": X})
    log.one("tracing", "that pass the optional inputs w have")
    log.one("tracing", "that return the values s have")
    loaded.release()
    log.one("tracing", "Released the programs of 3 signatures")
    loaded(X)
    log.one("tracing", "(x: float32[2, 3]): its program was released")


def test_an_invalid_call_is_no_new_signature(log: Records) -> None:
    loaded = sardonyx.load(doubled(), backend="numpy")
    with pytest.raises(sardonyx.InvalidInput):
        loaded(np.ones((2, 4), np.float32))
    assert not [text for text in log.texts("tracing") if text.startswith("New signature")]


# -- compiling ------------------------------------------------------------------------------------


def test_a_compile_that_a_call_waits_for(log: Records) -> None:
    sardonyx.load(product(), backend="jax", compile="now")(X)
    compiled: Any = log.one("compiling", "Compiled")
    assert re.fullmatch(
        r"Compiled \d steps? of graph in \d+\.\d\d s while the caller waited\.",
        compiled.getMessage(),
    )
    assert compiled.levelno == logging.INFO
    assert compiled.seconds > 0


def test_a_background_compile_takes_over(log: Records) -> None:
    loaded = sardonyx.load(product(), backend="jax", compile="background")
    loaded(X)
    assert "run one by one until they are compiled" in " ".join(log.texts("compiling"))
    loaded(X)
    log.one("compiling", "Compiles that wait for the background")
    wait_for(lambda: loaded.stats().compiles)
    wait_for(lambda: "in the background; calls run them now" in " ".join(log.texts("compiling")))


def test_a_long_compile_is_a_warning(log: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "LONG_COMPILE", 0.0)
    sardonyx.load(product(), backend="jax", compile="now")(X)
    (text,) = log.texts("compiling", logging.WARNING)
    assert "load(cache=...)" in text


def test_what_is_not_interpreted_has_a_reason(log: Records) -> None:
    compiling = compiler.Compiler(sardonyx.backends.find("numpy"))
    for _ in range(2):
        compiling._note_uninterpreted("no library\x1b[2J")
    assert compiling.uninterpreted == {"no library\x1b[2J": 2}
    first, second = (r for r in log.records if r.name == "sardonyx.compiling")
    assert first.getMessage() == r"A call waits for the compiler: no library\x1b[2J."
    assert (first.levelno, second.levelno) == (logging.INFO, logging.DEBUG)


# -- cache ----------------------------------------------------------------------------------------


def test_cache_misses_and_hits(tmp_path: Path, log: Records) -> None:
    def loaded() -> sardonyx.Model:
        return sardonyx.load(product(), backend="jax", compile="now", cache=tmp_path)

    loaded()(X)
    log.one("cache", "Cache miss: no recording")
    log.one("cache", "Cache miss: no compiled program")
    assert any(str(tmp_path) in text for text in log.texts("cache") if text.startswith("Wrote"))
    log.records.clear()
    loaded()(X)
    log.one("cache", "Cache hit: recording")
    log.one("cache", "Cache hit: compiled program")
    assert not any(text.startswith("Compiled") for text in log.texts("compiling"))
    assert {r.levelno for r in log.records if r.name == "sardonyx.cache"} == {logging.DEBUG}


def test_a_damaged_entry_is_a_warning_with_the_reason(tmp_path: Path, log: Records) -> None:
    for content in (None, b"", b"x" * 100):
        for path in tmp_path.iterdir() if content is not None else ():
            path.write_bytes(content or b"")
        log.records.clear()
        sardonyx.load(product(), backend="jax", compile="now", cache=tmp_path)(X)
        reasons = {r.reason for r in log.records if r.levelno == logging.WARNING}  # type: ignore[attr-defined]
        wanted = {None: set(), b"": {"it is too short"}, b"x" * 100: {"its checksum is wrong"}}
        assert reasons == wanted[content]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no modes")
def test_a_folder_that_is_not_trusted_any_more(tmp_path: Path, log: Records) -> None:
    loaded = sardonyx.load(product(), backend="jax", compile="now", cache=tmp_path)
    tmp_path.chmod(0o777)
    for rows in (1, 2):
        loaded(X[:rows])
    texts = log.texts("cache", logging.WARNING)
    assert [re.search(r"cannot be (\w+)", text)[1] for text in texts] == ["read", "written"]  # type: ignore[index]
    assert "can be written by others" in texts[0]


def test_a_folder_that_is_full(tmp_path: Path, log: Records) -> None:
    folder = PrivateFolder(tmp_path, most_bytes=200)
    folder.write("1" * 64 + ".kept", b"x" * 100)
    folder.write("2" * 64 + ".kept", b"x" * 100)
    log.one("cache", "which is full")
    folder.write("3" * 64 + ".kept", b"x" * 1000)
    log.one("cache", "is too small for an entry of 1000 bytes")


# -- kernels, buckets, backends -------------------------------------------------------------------

KERNELS = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
logging.getLogger("sardonyx").setLevel(logging.INFO)

class Asking(logging.Handler):
    def emit(self, record):
        from sardonyx.backends.jax import onednn
        assert onednn.status().startswith("XLA's own kernels")
        print("asked")

logging.getLogger("sardonyx.kernels").addHandler(Asking())
import numpy as np, sardonyx
sardonyx.load("examples/encoder.onnx", backend="jax")(np.zeros((1, 8, 48), np.float32))
sardonyx.load("examples/encoder.onnx", backend="jax")(np.zeros((1, 8, 48), np.float32))
"""


@NEEDS_ONEDNN
@pytest.mark.parametrize(
    ("environment", "start"),
    [
        ({"PATH": "", "CXX": ""}, "WARNING:sardonyx.kernels:"),
        ({"SARDONYX_ONEDNN": "0"}, "INFO:sardonyx.kernels:"),
    ],
)
def test_kernels_that_are_left_out(environment: dict[str, str], start: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    done = in_subprocess(KERNELS, XDG_CACHE_HOME=str(tmp_path), **environment)
    assert not done.returncode, done.stderr
    assert "asked" in done.stdout
    lines = [line for line in done.stdout.splitlines() if "sardonyx.kernels" in line]
    reasons = ("there is no C++ compiler", "switched off", "is not installed")
    (line,) = lines
    assert any(reason in line for reason in reasons)
    assert line.startswith(start) or "is not installed" in line


def test_buckets(log: Records) -> None:
    loaded = sardonyx.load(product(), backend="jax", buckets={"n": [4, 8]}, compile="now")
    loaded(X)
    assert log.one("buckets", "New bucket").getMessage().endswith("are padded to n = 4.")
    loaded(np.ones((3, 3), np.float32))
    served = log.one("buckets", "A bucket serves")
    assert served.levelno == logging.DEBUG
    loaded(np.ones((7, 3), np.float32))
    assert len([text for text in log.texts("buckets") if text.startswith("New bucket")]) == 2


def test_calls_that_are_not_padded_have_a_reason(log: Records) -> None:
    proto = model([node("CumSum", ["x", "axis"], ["c"]), node("Reshape", ["c", "flat"], ["y"])],
                  [value("x", ["n", 3])], ["y"],
                  [weight("axis", np.int64(0)), weight("flat", np.array([-1]))])  # fmt: skip
    loaded = sardonyx.load(proto, backend="jax", compile="now")
    for rows in range(2, 7):
        loaded(np.ones((rows, 3), np.float32))
    texts = log.texts("buckets")
    assert any("New bucket" in text or "not padded any more: " in text for text in texts), texts


def test_the_choice_of_a_backend(log: Records) -> None:
    sardonyx.load(doubled())
    chosen: Any = log.one("backends", "Chose the backend")
    assert chosen.backend in sardonyx.backends.available()
    assert log.one("loading", "Loaded graph for").levelno == logging.INFO


# -- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "logging.md"
VARYING = r"\d+\.\d+ s|\b[0-9a-f]{12}\b|\d+ bytes|[^ ]*tmp\w+"


@NEEDS_ONEDNN
def test_the_page_shows_what_is_logged(tmp_path: Path) -> None:
    """Without a compiler, so that the kernels are left out."""
    pytest.importorskip("jax")
    configure, *blocks = re.findall(
        r"```python\n(.*?)```(?:\s+```text\n(.*?)```)?", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    code = configure[0] + "".join(f"\nprint('===')\n{block}" for block, _ in blocks)
    done = in_subprocess(code, PATH="", CXX="", XDG_CACHE_HOME=str(tmp_path))
    assert not done.returncode, done.stderr
    if "is not installed" in done.stdout:
        pytest.skip("oneDNN is not installed, which is another message")
    for (_, shown), written in zip(blocks, done.stdout.split("===\n")[1:], strict=True):
        assert re.sub(VARYING, "...", written) == re.sub(VARYING, "...", shown)


def test_the_page_lists_all_loggers() -> None:
    package = Path(sardonyx.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    names = set(re.findall(r"^_?[A-Z]+ = Log\(\"(\w+)\"\)", code, re.MULTILINE))
    assert names == set(
        re.findall(r"^\| `sardonyx\.(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )


# -- messages that could do harm ------------------------------------------------------------------


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
    for _ in listening(Raising()):
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
    for handler in listening(Calling()):
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
    for handler in listening(Calling()):
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
    for handler in listening(Same()):
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
    assert log.texts("tracing") == ["in time", "late"]


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
    for _ in listening(records):
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
            "from tests.test_logging import X, _called, doubled\n"
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
