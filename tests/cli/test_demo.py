"""`sardonyx demo`: the example model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.cli.commands.demo import example
from sardonyx.cli.main import main
from tests.cli.processes import environment


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_demo(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--backend", backend]) == 0
    told, complaints = capsys.readouterr()
    assert not complaints
    assert f"on {backend} (" in told
    for kind in ("static", "alias", "constant", "weight", "device"):
        assert f"\n{kind} " in told
    assert ("\njax " if backend == "numpy" else "\nnumpy ") in told
    assert "onnxruntime (stored)" in told
    assert "repeated, median" in told


@pytest.mark.slow
def test_python_m_sardonyx_takes_the_example_from_anywhere(tmp_path: Path) -> None:
    assert example("encoder.onnx").is_file()
    assert example("encoder.npz").is_file()
    run = subprocess.run(
        [sys.executable, "-m", "sardonyx", "demo", "--backend", "numpy"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("encoder.onnx, exported by pytorch")
    assert not run.stderr


def test_its_inputs_are_those_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "abacus"]) == 2
    assert "cuda:1" in capsys.readouterr().err
