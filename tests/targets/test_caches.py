"""`sardonyx compile --target`: a file from which `load` starts on hardware that is not here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import parser

from sardonyx.backends.jax import cache
from sardonyx.cli.main import main
from sardonyx.targets.worker import ENVIRONMENT, Worker

ENCODER = str(Path(__file__).parents[2] / "examples" / "encoder.onnx")
CALLS = ["--shape", "x=1,8,48", "--shape", "x=2,5,48"]

# What a process on the hardware does up to the point at which it would load the programs.
LATER = """
import sys
import numpy as np
import sardonyx
from sardonyx.backends.cache_file import CacheFile
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.cache import _content_of, _file_of
from sardonyx.targets.child.backend import TargetBackend
from sardonyx.targets.names import named

target, path, file = sys.argv[1:]
wanted = []


class Hardware(TargetBackend):
    # By default, attention on CUDA is meant for cuDNN there.
    asks_cudnn = JaxBackend.asks_cudnn

    def _with(self, **choices):
        other = super()._with(**choices)
        other.__class__ = Hardware
        return other

    def compile(self, replay, arguments, *, donated=(), name=None):
        wanted.append(_file_of(_content_of(name), self._entry_options, self._actual_device))
        return super().compile(replay, arguments, donated=donated, name=name)


backend = Hardware(named(target), lambda compilation: None, str)
model = sardonyx.load(path, backend=backend, cache=file)
for shape in (1, 8, 48), (2, 5, 48):
    model(np.zeros(shape, np.float32))
print(model.stats().traces, len(wanted), set(wanted) <= set(CacheFile(file).names()))
"""


@pytest.fixture
def compilers(target_worker: Worker) -> None:
    """XLA's compilers, where the extra is installed."""


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
@pytest.mark.parametrize("target", ["h100", "v5e", "a100"])
def test_a_process_there_neither_traces_nor_compiles(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "encoder.cache")
    assert main(["compile", ENCODER, *CALLS, "--target", target, "-o", file]) == 0
    assert "2 programs for 2 calls" in capsys.readouterr().out
    later = subprocess.run(
        [sys.executable, "-W", "error", "-c", LATER, target, ENCODER, file],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert later.stdout.split() == ["0", "2", "True"], later.stderr


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_it_lies_beside_the_model_and_warns_on_other_hardware(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(Path(ENCODER).read_bytes())
    assert main(["compile", str(path), *CALLS, "--target", "h100"]) == 0
    file = path.with_suffix(".sardonyx-cache")
    assert str(file) in capsys.readouterr().out
    code = f"import sardonyx; sardonyx.load({str(path)!r}, backend='jax', cache={str(file)!r})"
    here = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "another device" in here.stderr or "another processor" in here.stderr


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_data_that_decide_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[6] x) => (float[n, 1] y) {
        at = NonZero (x) turned = Transpose (at) y = Cast <to = 1> (turned) }"""
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    assert main(["compile", str(path), "--target", "v5e"]) == 0
    assert "compiled by that call" in capsys.readouterr().out


@pytest.mark.aot
@pytest.mark.usefixtures("compilers")
def test_no_file_is_written_for_a_model_that_does_not_compile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    g (float[300000, 300000] x) => (float[300000, 300000] y) { y = Sin (x) }"""
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    assert main(["compile", str(path), "--target", "v5e"]) == 1
    assert "was not compiled for 'v5e'" in capsys.readouterr().err
    assert not path.with_suffix(".sardonyx-cache").exists()


@pytest.mark.parametrize(
    ("options", "words", "status"),
    [
        (["--target", "v5e:2x2"], "is a mesh", 1),
        (["--target", "h9"], "There is no target", 1),
        (["--target", "h100", "--backend", "cupy"], "leave out --backend", 2),
        (["--target", "h100", "--device", "cuda"], "leave out --backend", 2),
    ],
)
def test_what_cannot_be_asked_for(
    options: list[str], words: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", ENCODER, *options]) == status
    assert words in capsys.readouterr().err


def test_the_name_of_an_entry_is_that_of_the_compiler_and_not_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device and its description differ in what their clients say."""
    versions = {"libtpu": "0.1", "jax-cuda13-plugin": "0.2"}
    monkeypatch.setattr(cache, "_installed", versions.get)

    def name(platform: str, client: str) -> str:
        words = SimpleNamespace(platform_version=client)
        device = SimpleNamespace(platform=platform, device_kind="X", client=words)
        return cache._file_of("program", {}, device)  # type: ignore[arg-type]

    for platform in ("tpu", "gpu"):
        before = name(platform, "a device")
        assert before == name(platform, "its description")
        monkeypatch.setattr(cache, "_installed", {**versions, "libtpu": "0.3"}.get)
        assert (before != name(platform, "a device")) == (platform == "tpu")
        monkeypatch.setattr(cache, "_installed", versions.get)
    assert name("cpu", "one") != name("cpu", "another")
