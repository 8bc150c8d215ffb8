"""The file that `sardonyx compile` writes: a later process starts from it, if it may and can."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.cache_file import CacheFile, write_cache_file
from sardonyx.cli.main import main
from sardonyx.errors import InvalidInput

posix = pytest.mark.skipif(os.name != "posix", reason="Windows controls access in other ways")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can change owners"
)

# Whose functions say what a cache depends on.
COMMON, JAX = "sardonyx.backends.compiled_folder", "sardonyx.backends.jax.folder"

TEXT = """<ir_version: 10, opset_import: ["": 22]> g (float[n, 2] x, float[2] w) => (float[n, 2] y)
<float[2] factor = {2.0, 3.0}> { scaled = Mul (x, factor) sum = Add (scaled, w) y = Tanh (sum) }"""
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
W = np.array([0.5, -0.25], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with its cache file beside it, for three rows."""
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    assert main(["compile", str(path), "--shape", "x=3,2", "--backend", "jax"]) == 0
    return path


def file_of(path: Path) -> Path:
    return path.with_suffix(".sardonyx-cache")


def loaded(path: Path, **options: Any) -> sardonyx.Model:
    return sardonyx.load(path, backend="jax", cache=file_of(path), **options)


# -- another process ------------------------------------------------------------------------------

LATER = """
import sys
import jax, numpy as np, sardonyx

events = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
path, cache, data = sys.argv[1:]
# Otherwise the first calls would run step by step, while JAX is imported for the stored programs.
jax.devices()
calls = np.load(data)
model = sardonyx.load(path, backend="jax", cache=cache)
for i in range(2):
    assert model(calls[f"x{i}"]).tobytes() == calls[f"y{i}"].tobytes()
print(model.stats().traces, sum("compile" in name for name in events))
"""


@pytest.mark.slow
def test_another_process_neither_traces_nor_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file, data = "examples/encoder.onnx", tmp_path / "encoder.cache", tmp_path / "calls.npz"
    shapes = ["--shape", "x=1,8,48", "--shape", "x=2,5,48"]
    assert main(["compile", path, *shapes, "--backend", "jax", "-o", str(file)]) == 0
    assert "2 programs for 2 calls" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    drawn = np.random.default_rng(0)
    xs = [drawn.standard_normal(shape, np.float32) for shape in ((1, 8, 48), (2, 5, 48))]
    model = sardonyx.load(path, backend="jax")
    ys = [model(x) for x in xs]
    np.savez(data, x0=xs[0], x1=xs[1], y0=ys[0], y1=ys[1])
    run = [sys.executable, "-W", "error", "-c", LATER, path, str(file), str(data)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["0", "0"], "")


def test_calls_of_other_shapes_run_without_it(path: Path) -> None:
    before = file_of(path).read_bytes()
    model = loaded(path)
    for x, traces in ((X, 0), (X[:1], 1), (X, 1)):
        np.testing.assert_allclose(model(x, W), np.tanh(x * [2, 3] + W), rtol=1e-6)
        assert model.stats().traces == traces
    assert file_of(path).read_bytes() == before
    assert pickle.loads(pickle.dumps(model))(X, W).tobytes() == model(X, W).tobytes()


def test_a_backend_that_compiles_nothing_ignores_it(path: Path) -> None:
    model = sardonyx.load(path, backend="numpy", cache=file_of(path))
    np.testing.assert_allclose(model(X, W), np.tanh(X * [2, 3] + W), rtol=1e-6)


# -- where it does not fit ------------------------------------------------------------------------


def warned(path: Path, reason: str, **options: Any) -> None:
    """Such a load warns, and calls are right all the same."""
    with pytest.warns(UserWarning, match=f"not used: it was compiled {reason}") as told:
        model = loaded(path, **options)
    assert told[0].filename == __file__
    np.testing.assert_allclose(model(X, W), np.tanh(X * [2, 3] + W), rtol=1e-2)
    assert model.stats().traces == 1


def test_another_model(path: Path) -> None:
    onnx.save(parser.parse_model(TEXT.replace("Tanh", "Sigmoid")), path)
    with pytest.warns(UserWarning, match="from another model or with other options"):
        model = loaded(path)
    np.testing.assert_allclose(model(X, W), 1 / (1 + np.exp(-X * [2, 3] - W)), rtol=1e-5)


def test_other_weights_are_those_of_the_model(path: Path) -> None:
    """As after more training: no recording depends on the values of these weights."""
    onnx.save(parser.parse_model(TEXT.replace("2.0", "4.0")), path)
    model = loaded(path)
    np.testing.assert_allclose(model(X, W), np.tanh(X * [4, 3] + W), rtol=1e-6)
    assert model.stats().traces == 0


@pytest.mark.parametrize("options", [{"rewrites": False}, {"strict": False}, {"jit": False}])
def test_other_options(path: Path, options: Any) -> None:
    warned(path, "f.* other options", **options)


def test_another_precision(path: Path) -> None:
    warned(path, "for another device or number of processors, or with other", precision="bfloat16")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (f"{JAX}.libraries", {"jax": "0.0.1"}, "with another version of jax"),
        (f"{COMMON}.own_sources", "older code", "with another version of sardonyx"),
        (f"{JAX}.processor", "flags: few", "on another processor"),
    ],
)
def test_another_machine(
    path: Path, name: str, value: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name, lambda: value)
    warned(path, reason)


# -- what is refused ------------------------------------------------------------------------------


def test_a_file_that_is_not_whole(path: Path) -> None:
    content = file_of(path).read_bytes()
    for size in (17, 63, 64, 100, len(content) - 1):
        file_of(path).write_bytes(content[:size])
        with pytest.raises(InvalidInput, match="is truncated or was altered"):
            loaded(path)
    file_of(path).write_bytes(content + b"\0")
    with pytest.raises(InvalidInput, match="is truncated or was altered"):
        loaded(path)


def test_a_file_with_another_bit(path: Path) -> None:
    content = file_of(path).read_bytes()
    for place in (16, 50, 60, 64, 200, len(content) // 2, len(content) - 1):
        altered = bytearray(content)
        altered[place] ^= 1
        file_of(path).write_bytes(altered)
        with pytest.raises(InvalidInput, match=r"altered: write it again with `sardonyx compile`"):
            loaded(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"sardonyx cache 2" + bytes(100)])
def test_other_files(content: bytes, path: Path) -> None:
    file_of(path).write_bytes(content)
    with pytest.raises(InvalidInput, match="a file that `sardonyx compile` of this version did"):
        loaded(path)


@posix
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_to(path: Path, mode: int) -> None:
    assert stat.S_IMODE(file_of(path).stat().st_mode) & 0o622 == 0o600
    file_of(path).chmod(mode)
    with pytest.raises(InvalidInput, match=r"written by others .* run `chmod go-w` on it"):
        loaded(path)
    file_of(path).chmod(0o444)
    assert loaded(path)(X, W).shape == X.shape


@as_root
def test_a_file_of_another_user(path: Path) -> None:
    os.chown(file_of(path), 12345, 12345)
    with pytest.raises(InvalidInput, match=r"belongs to another user \(12345\).* another file"):
        loaded(path)


@posix
def test_a_link_leads_to_a_file_that_is_checked(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file_of(path))
    assert CacheFile(link).names() == CacheFile(file_of(path)).names()
    file_of(path).chmod(0o666)
    with pytest.raises(InvalidInput, match="can be written by others"):
        CacheFile(link)


@posix
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidInput, match="neither a folder nor a file"):
        CacheFile(tmp_path / "pipe")


# -- the command ----------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    for target in (tmp_path / "none" / "file", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be written"):
            write_cache_file(target, {}, {"a": b"b"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ([], "sizes of the input x: tensor(float)[n, 2] are not all fixed", 1),
        (["--shape", "w=2"], "pass them as in --shape x=", 1),
        (["--shape", "3,2"], "'3,2' is not INPUT=SIZES", 2),
        (["--shape", "x=-1,2"], "is not INPUT=SIZES", 2),
        (["--shape", "x=" + "9" * 5000], "is not INPUT=SIZES", 2),
        (["--shape", "x=999999999999,2"], "too large", 1),
        (["--shape", "x=3,4"], "'x'", 1),
        (["--shape", "x=3,2", "z=1"], "z", 1),
        (["--shape", "x=3,2", "--backend", "numpy"], "'numpy' does not compile", 1),
        (["--shape", "x=3,2", "-o", "no/such/folder/file"], "cannot be written", 1),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    status: int,
    path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compile", str(path), *arguments]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sardonyx: ")
    assert message in line


def test_inputs_that_are_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 10, opset_import: ["": 22]> g (string[2] x) => (string[2] y) '
    onnx.save(parser.parse_model(text + "{ y = Identity (x) }"), tmp_path / "m.onnx")
    assert main(["compile", str(tmp_path / "m.onnx"), "--backend", "jax"]) == 1
    assert "is no array of numbers" in capsys.readouterr().err
