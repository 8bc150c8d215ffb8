"""What sardonyx logs, and that it is silent by default."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.graph.programs import compiler
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.logged import (
    BACKENDS,
    Records,
    X,
    doubled,
    in_subprocess,
    listening,
    product,
    reshaped,
    wait_for,
)
from tests.support.onnx_builders import INT64, model, node, value, weight


@pytest.fixture
def log() -> Iterator[Records]:
    with listening(Records()) as records:
        yield records


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
    for _ in range(3):  # CuPy fuses and captures in calls after the first.
        loaded(X)
    wait_for_background()  # NumPy's steps are written out there, which is logged.
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
    for _ in range(3):  # CuPy fuses and captures in calls after the first.
        loaded(X)
    wait_for_background()  # NumPy's steps are written out there, which is logged.
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


def sines() -> onnx.ModelProto:
    return model([node("Sin", ["x"], ["y"])], [value("x", ["n", 3])], ["y"])


@pytest.mark.parametrize(
    ("proto", "x", "done"),
    [(product(), X, "Wrote out"), (sines(), np.ones((20_000, 3), np.float32), "Compiled")],
    ids=["small", "large"],
)
def test_a_background_compile_takes_over(
    log: Records, proto: onnx.ModelProto, x: Any, done: str
) -> None:
    loaded = sardonyx.load(proto, backend="jax", compile="background")
    loaded(x)
    assert "run one by one until they are compiled" in " ".join(log.texts("compiling"))
    loaded(x)
    log.one("compiling", "Compiles that wait for the background")
    wait_for(lambda: f"{done} 1 step" in " ".join(log.texts("compiling")))
    assert "in the background; calls run them now" in " ".join(log.texts("compiling"))


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


@pytest.mark.sampled(2)
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


@pytest.mark.slow
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
