"""`sardonyx check`: whether and where a model runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from sardonyx.cli.main import main
from tests.cli.models import ENCODER
from tests.cli.test_show import saved


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


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", ENCODER, "--shape", "x=2,16,48", "--json", "--backend", "jax"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"]
    assert found["inputs"] == {"x": "float32[2, 16, 48]"}
    assert [segment["runs_on"] for segment in found["segments"]] == ["jax"]
    assert main(["check", ENCODER, "--shape", "x=2,16,47", "--json"]) == 1
    assert "48" in json.loads(capsys.readouterr().out)["reason"]
    path = saved(tmp_path, helper.make_node("Strange", ["x", "w"], ["y"], domain="odd", name="it"))
    assert main(["check", path, "--json"]) == 1
    (refusal,) = json.loads(capsys.readouterr().out)["unsupported"]
    assert refusal["nodes"] == ["node 'it'"]
