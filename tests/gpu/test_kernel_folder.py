"""Compiled kernels and recordings of CuPy in a cache's folder: later processes only load them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.cli.main import main
from sardonyx.errors import InvalidInput
from tests.test_exporter_models import FOLDER, recorded_calls

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[n, 3] x) => (float[n, 3] y) { a = Sin(x) b = Add(a, x) y = Mul(b, b) }"""
X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(4, 3)

LATER = """
import sys, warnings
import cupy, numpy as np, sardonyx

compiled = []
native = cupy.cuda.compiler.compile_using_nvrtc
cupy.cuda.compiler.compile_using_nvrtc = lambda *a, **k: compiled.append(a) or native(*a, **k)
path, folder, data = sys.argv[1:]
warnings.simplefilter("error")
model = sardonyx.load(path, backend="cupy", cache=folder)
calls = dict(np.load(data))
names = [name for name in calls if name.startswith("x:")]
for _ in range(3):
    outputs = model.run(None, {name[2:]: calls[name] for name in names})
for i, output in enumerate(outputs):
    assert output.tobytes() == calls[f"y:{i}"].tobytes()
print(model.stats().traces, len(compiled), model.stats().unfused)
"""


@pytest.fixture(autouse=True)
def _on_cupy(cupy_backend: CupyBackend) -> None:
    """Whatever is loaded by name finds a device."""


def loaded(folder: Path, text: str = TEXT) -> sardonyx.Model:
    return sardonyx.load(parser.parse_model(text), backend="cupy", cache=folder)


def correct(model: sardonyx.Model) -> bool:
    for _ in range(3):
        result = cupy.asnumpy(model(X))
    return bool(np.allclose(result, np.square(np.sin(X) + X), rtol=1e-6))


def kernels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cubin"))


def in_a_later_process(path: Path, folder: Path, call: dict[str, Any], tmp_path: Path) -> str:
    np.savez(tmp_path / "call.npz", **call)
    command = [sys.executable, "-c", LATER, str(path), str(folder), str(tmp_path / "call.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["separable_dynamo", "decoder_dynamo", "sklearn_mlp"])
def test_a_later_process_neither_traces_nor_compiles(name: str, tmp_path: Path) -> None:
    path, folder = FOLDER / f"{name}.onnx", tmp_path / "cache"
    model = sardonyx.load(path, backend="cupy", cache=folder)
    feeds, _ = recorded_calls(name)[0]
    for _ in range(3):
        outputs = model.run(None, feeds)
    assert model.stats().traces == 1
    assert kernels(folder)
    call = {f"x:{name}": x for name, x in feeds.items()}
    call |= {f"y:{i}": y for i, y in enumerate(outputs)}
    assert in_a_later_process(path, folder, call, tmp_path) == "0 0 {}"


def test_the_command_writes_a_file_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "model.onnx", tmp_path / "model.cache"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    command = ["compile", str(path), "--shape", "x=4,3", "--backend", "cupy", "-o", str(file)]
    assert main(command) == 0
    assert "1 kernel for 1 call" in capsys.readouterr().out
    expected = sardonyx.load(path, backend="cupy").run(None, {"x": X})[0]
    call = {"x:x": X, "y:0": expected}
    assert in_a_later_process(path, file, call, tmp_path) == "0 0 {}"


def test_kernels_that_another_folder_has_are_written_too(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert correct(loaded(folder))
    (one,), (other,) = kernels(tmp_path / "a"), kernels(tmp_path / "b")
    assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path) -> None:
    assert correct(loaded(tmp_path))
    (file,) = kernels(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:-40] + bytes(40))
    assert correct(loaded(tmp_path))
    assert file.read_bytes() == content


def test_a_kernel_that_the_driver_refuses_is_compiled_again(tmp_path: Path) -> None:
    """As after a driver was replaced by one that cannot read what it wrote."""
    assert correct(loaded(tmp_path))
    (file,) = kernels(tmp_path)
    content = file.read_bytes()
    PrivateFolder(tmp_path).write(file.name, b"not a kernel")
    assert correct(loaded(tmp_path))
    assert file.read_bytes() == content


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidInput, match="can be written by others"):
        loaded(tmp_path)


def test_a_folder_that_becomes_writable_is_not_read_any_more(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    tmp_path.chmod(0o777)
    assert correct(model)
    assert not kernels(tmp_path)


def test_a_pickled_model_has_the_folder(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    again = pickle.loads(pickle.dumps(model))
    assert correct(again)
    assert kernels(tmp_path)


def test_checked_programs_are_told_apart(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[n, 3] x, int64[k] i) => (float[k, 3] y) { a = Sin(x) y = Gather(a, i) }"""
    proto, far = parser.parse_model(text), np.array([9])
    plain = sardonyx.load(proto, backend="cupy", cache=tmp_path)
    plain(X, far)
    checked = sardonyx.load(proto, backend="cupy", cache=tmp_path, checked=True)
    with pytest.raises(sardonyx.SardonyxError, match="Gather"):
        checked(X, far)
    assert checked.stats().traces
