"""`--shape`: repeated, with several pairs behind it, or in quotes; and calls of `compile`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from tests.cli.models import saved

CALL = {"x": "float32[3, 2]", "k": "int64[3, 1]"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "shapes",
    [
        ["--shape", "x=3,2", "k=3,1"],
        ["--shape", "x=3,2", "--shape", "k=3,1"],
        ["--shape", "x=3,2 k=3,1"],
        ["--shape=x=3,2", "k=3,1"],
        ["--shape=x=3,2", "--shape=k=3,1"],
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_each_spelling(
    shapes: list[str], is_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path)
    arguments = [*shapes, path] if is_first else [path, *shapes]
    assert main(["check", *arguments, "--backend", "numpy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == CALL


def test_paths_with_equals_signs_are_no_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, name="lr=0.1.onnx")
    arguments = ["--shape", "x=3,2", "k=3,1", path, "--backend", "numpy", "--json"]
    assert main(["check", *arguments]) == 0
    capsys.readouterr()
    assert main(["check", "--backend", "numpy", "--shape", "x=3,2", "--", path]) == 1
    assert "k" in capsys.readouterr().out


def test_names_with_blanks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "g (float[n] xxxx) => (float[n] y) { y = Exp (xxxx) }")
    Path(path).write_bytes(Path(path).read_bytes().replace(b"xxxx", b"a bb"))
    assert main(["check", path, "--shape", "a bb=3", "--backend", "numpy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == {"a bb": "float32[3]"}


@pytest.mark.parametrize(
    ("shapes", "calls"),
    [
        (["--shape", "x=3,2", "k=3,1", "--shape", "x=4,2", "k=4,1"], 2),
        (["--shape", "x=3,2", "--shape", "k=3,1", "--shape", "x=4,2", "--shape", "k=4,1"], 2),
        (["--shape", "x=3,2 k=3,1", "--shape", "x=4,2 k=4,1"], 2),
        (["--shape", "x=3,2", "--shape", "k=3,1"], 1),
    ],
)
def test_an_input_that_comes_again_begins_a_call(
    shapes: list[str], calls: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", saved(tmp_path), *shapes, "--backend", "jax"]) == 0
    assert f"for {calls} call" in capsys.readouterr().out


def test_one_call_has_one_shape_for_an_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", saved(tmp_path), "--shape", "x=3,2", "--shape", "x=4,2"]
    assert main(arguments) == 2
    assert "'x' has two shapes" in capsys.readouterr().err
