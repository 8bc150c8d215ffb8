"""`sardonyx bench`: load, first call, repeated calls, and whether the results agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from tests.cli.models import ENCODER, saved
from tests.cli.processes import environment

QUICK = ["--seconds", "0", "--shape", "x=1,4,48"]


def test_backends_in_turns(capsys: pytest.CaptureFixture[str]) -> None:
    on = ["--backend", "jax", "--backend", "numpy", "--backend", "onnxruntime"]
    assert main(["bench", ENCODER, *QUICK, *on, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [start["title"] for start in found["starts"]] == ["jax", "numpy", "onnxruntime"]
    titles = ["jax", "jax, arrays on the device", "numpy", "onnxruntime"]
    assert [each["title"] for each in found["calls"]] == titles
    for each in found["calls"]:
        assert each["calls"] >= 5
        assert 0 < each["min"] <= each["p50"] <= each["p90"] <= each["p99"]
    assert found["agrees"]


def test_the_default_is_onnxruntime_beside_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", ENCODER, *QUICK, "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    for word in ("first call", "agrees", "arrays on the device", "p99", "onnxruntime"):
        assert word in told


def test_results_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    on = ["--backend", "jax", "--backend", "numpy", "--tolerance", "1e-12"]
    assert main(["bench", ENCODER, *QUICK, *on]) == 1
    assert "differs" in capsys.readouterr().out


def test_inputs_without_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "g (string[3] x) => (string[3] y) { y = Identity (x) }")
    assert main(["bench", path, "--seconds", "0", "--backend", "jax"]) == 0
    assert "on the device" not in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors are bound on Linux")
def test_threads() -> None:
    """In a process of its own, in which JAX has not started."""
    command = [sys.executable, "-m", "sardonyx", "bench", ENCODER, *QUICK, "--threads", "1"]
    run = subprocess.run(
        [*command, "--backend", "onnxruntime"],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "p50" in run.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--threads", "0"], 2),
        (["--threads", "4096"], 2),
        (["--seconds", "-1"], 2),
        (["--seconds", "nan"], 2),
        (["--backend", "numpy", "--backend", "numpy"], 2),
        (["--shape", "y=1"], 1),
    ],
)
def test_mistakes(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", ENCODER, *arguments]) == status
    assert len(capsys.readouterr().err.splitlines()) == 1
