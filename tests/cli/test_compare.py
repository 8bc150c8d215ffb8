"""`sardonyx compare`: two computations of a model, value by value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from tests.cli.models import ENCODER, saved

SHAPE = ["--shape", "x=1,4,48", "--backend", "numpy"]


def test_onnxruntime_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", ENCODER, *SHAPE]) == 0
    told = capsys.readouterr().out
    assert told.startswith("a (numpy) and b (onnxruntime): 61 values compared")
    assert "The values that differ most" in told


@pytest.mark.slow
def test_backends_and_precisions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", ENCODER, *SHAPE, "--with", "jax", "--values", "layer_norm*"]) == 0
    assert "a (numpy) and b (jax): 4 values compared" in capsys.readouterr().out
    on = ["--with", "jax", "--with-precision", "bfloat16"]
    assert main(["compare", ENCODER, *SHAPE, *on, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["agrees"]
    assert found["first"] in [row["value"] for row in found["values"]]
    assert main(["compare", ENCODER, *SHAPE, *on, "--tolerance", "0.1", "--quiet"]) == 0
    assert not capsys.readouterr().out


def test_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[2] x) => (float[2] y) <float[1] w = {W}> { h = Add (x, w) y = Exp (h) }"
    one = saved(tmp_path, text.replace("W", "1.0"), "one.onnx")
    other = saved(tmp_path, text.replace("W", "1.5"), "other.onnx")
    assert main(["compare", one, one, "--backend", "numpy"]) == 0
    capsys.readouterr()
    for side in ([], ["--with", "onnxruntime"]):
        assert main(["compare", one, other, "--backend", "numpy", *side]) == 1
        assert "'h'" in capsys.readouterr().out


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--with", "abacus"], 2),
        (["--with-precision", "vague"], 2),
        (["--with", "jax", "--optimized"], 2),
        (["--values", "nothing"], 1),
        (["no such file.onnx"], 1),
        (["--rows", "-1"], 2),
    ],
)
def test_mistakes(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", ENCODER, *arguments, *SHAPE]) == status
    assert len(capsys.readouterr().err.splitlines()) == 1
