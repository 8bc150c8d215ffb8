"""`sardonyx show`: inputs, outputs and operators."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.cli.main import main
from tests.cli.models import ENCODER


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


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", ENCODER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == [
        {"name": "x", "type": "tensor(float)", "shape": ["batch", "sequence", 48]}
    ]
    assert found["operators"]["MatMul"] == 12
    assert found["can_run"]
    path = saved(tmp_path, helper.make_node("Strange\x1b", ["x", "w"], ["y"], domain="odd"))
    assert main(["show", path, "--json"]) == 1
    told = capsys.readouterr()
    assert "Strange" in json.loads(told.out)["reason"]
    assert "\x1b" not in told.out + told.err
    assert main(["show", path, "--json", "--html"]) == 2
