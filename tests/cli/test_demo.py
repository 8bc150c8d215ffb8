"""The command line, as a person or a pipe sees it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.cli.demo import example
from sardonyx.cli.main import main

ROOT = Path(__file__).parents[1]
ENCODER = str(ROOT / "examples" / "encoder.onnx")


def saved(folder: Path, node: onnx.NodeProto, **metadata: str) -> str:
    """A model of one node that adds or whatever it does to an input `x` and a weight `w`."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy")
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("odd", 1)]
    graph = helper.make_graph([node], "small", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=opsets)
    helper.set_model_props(model, metadata)
    path = folder / "small.onnx"
    onnx.save(model, path)
    return str(path)


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


def test_what_is_piped_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", ENCODER]) == 0
    told = capsys.readouterr().out
    told.encode("ascii")
    assert "\x1b" not in told
    assert told.splitlines() == [line.rstrip() for line in told.splitlines()]


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, helper.make_node("Add", ["x", "w"], ["y"]), inputs="of the exporter")
    assert main(["show", path, "--backend", "numpy"]) == 0
    told = capsys.readouterr().out.splitlines()
    rows = [tuple(line.split(maxsplit=1)) for line in told if line]
    assert rows == [
        ("inputs", "x: tensor(float)[n, 2]"),
        ("outputs", "y: tensor(float)[n, 2]"),
        ("opsets", "ai.onnx 20, odd 1"),
        ("params", "1, 8 bytes"),
        ("graph", "small"),
        ("inputs", "of the exporter"),
        ("nodes", "1: 1 Add"),
        ("The", "model can run; the backend is numpy."),
    ]


def test_show_tells_of_a_model_that_cannot_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, helper.make_node("Strange", ["x", "w"], ["y"], domain="odd"))
    assert main(["show", path]) == 1
    told, complaints = capsys.readouterr()
    assert "1: 1 odd::Strange" in told
    assert "can run" not in told
    assert complaints.startswith("sardonyx: ")
    assert "odd::Strange" in complaints


def test_text_of_a_model_reaches_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("\x1b[2JAdd", ["x", "w"], ["y"], domain="odd")
    path = saved(tmp_path, node, note="[red]\x1b]0;title\x07 " + "long " * 1000)
    assert main(["show", path]) == 1
    told, complaints = capsys.readouterr()
    assert "\x1b" not in told + complaints
    assert r"[red]\x1b]0;title\x07" in told
    assert "5,016 characters" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "no such file.onnx"],
        ["show", str(Path(__file__))],
        ["show", ENCODER, "--backend", "abacus"],
        ["demo", "--device", "abacus"],
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    complaints = capsys.readouterr().err
    assert complaints.startswith("sardonyx: ")
    assert complaints.count("\n") == 1


def test_python_m_sardonyx_takes_the_example_from_anywhere(tmp_path: Path) -> None:
    assert example("encoder.onnx").is_file()
    assert example("encoder.npz").is_file()
    run = subprocess.run(
        [sys.executable, "-m", "sardonyx", "demo", "--backend", "numpy"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("encoder.onnx, exported by pytorch")
    assert not run.stderr


def test_check_lists_the_segments_and_their_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", ENCODER, "--shape", "x=2,16,48", "--backend", "jax"]) == 0
    told = capsys.readouterr().out
    assert "can run on jax" in told
    assert "x: float32[2, 16, 48]" in told
    (row,) = [line.split() for line in told.splitlines() if line.startswith("0 ")]
    assert row[1] == "jax"
    assert int(row[2]) > 10
    assert "waits for the device only at its end" in told


def test_check_says_why_a_step_runs_on_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Unique", ["e"], ["u"])]
    nodes.append(helper.make_node("Neg", ["u"], ["y"]))
    graph = helper.make_graph(nodes, "host", [x], [y])
    path = tmp_path / "host.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    assert main(["check", str(path), "--shape", "x=5", "--backend", "jax"]) == 0
    told = capsys.readouterr().out
    assert "Unique: the shape of its result depends on data" in told
    assert re.findall(r"^\d +(jax|host) ", told, re.MULTILINE) == ["jax", "host", "jax"]


def test_check_lists_every_unsupported_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, helper.make_node("Strange", ["x", "w"], ["y"], domain="odd", name="it"))
    assert main(["check", path]) == 1
    told = capsys.readouterr().out
    assert "odd::Strange of opset 1" in told
    assert "it" in told


def test_check_asks_for_sizes_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for shape, said in (("x=2,16,47", "48"), ("z=1", "'z'")):
        assert main(["check", ENCODER, "--shape", shape]) == 1
        told = capsys.readouterr().out
        assert said in told
        assert "--shape x=" in told
