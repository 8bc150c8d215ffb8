"""`sardonyx save`: weights back into an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from tests.cli.models import ENCODER, saved

W = np.float32([10, 20])
X = np.zeros((1, 2), np.float32)
GRAPH = "g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1.0, 2.0}> { y = Add (x, w) }"


def write(path: Path, **arrays: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> str:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        pytest.importorskip("safetensors", reason="no safetensors")
        sardonyx.save_params(path, arrays)
    return str(path)


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_params_in_place_of_its_own(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = write(tmp_path / f"p.{suffix}", w=W)
    path = saved(tmp_path, GRAPH)
    for out in (str(tmp_path / "new.onnx"), path):
        assert main(["save", path, "--params", params, "-o", out]) == 0
        assert "1 weight of 8 B, 1 of them replaced" in capsys.readouterr().out
        np.testing.assert_array_equal(sardonyx.load(out)(X), W[None])


def test_weights_beside_the_file(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((64, 256), np.float32)
    text = "g (float[n, 64] x, float[64, 256] w) => (float[n, 256] y) { y = MatMul (x, w) }"
    path = saved(tmp_path, text)
    model = onnx.load(path)
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(model, path)
    out = tmp_path / "out.onnx"
    assert main(["save", path, "-o", str(out), "--external", "--quiet"]) == 0
    assert (tmp_path / "out.onnx.data").stat().st_size == w.nbytes
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(sardonyx.load(out, backend="numpy")(x), x @ w, rtol=1e-5, atol=1e-4)
    assert main(["save", str(out), "-o", str(tmp_path / "in.onnx"), "--inside", "--quiet"]) == 0
    assert (tmp_path / "in.onnx").stat().st_size > w.nbytes


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.safetensors", "There is no file"),
        ("bad.safetensors", "No params can be read"),
        ("bad.npz", "arrays can be read from"),
        ("shape.npz", "cast or reshape it"),
        ("unknown.npz", "has no initializer 'v'"),
        (".", "There is no file '.' of params"),
    ],
)
def test_mistakes(
    name: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved(tmp_path, GRAPH)
    monkeypatch.chdir(tmp_path)
    for each in ("bad.safetensors", "bad.npz"):
        Path(each).write_bytes(b"nothing of the kind")
    np.savez("shape.npz", w=np.zeros(3, np.float32))
    np.savez("unknown.npz", v=W)
    if "safetensors" in name:
        pytest.importorskip("safetensors", reason="no safetensors")
    assert main(["save", path, "--params", name, "-o", "out.onnx"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not Path("out.onnx").exists()


def test_what_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["save", ENCODER, "-o", str(tmp_path / "no" / "such.onnx")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert main(["save", ENCODER]) == 2
