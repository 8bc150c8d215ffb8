"""`sardonyx check`: whether and where a model runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
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


def sizes_told(
    path: str, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, dict[str, Any]]:
    """What `check` says of padding along each free dimension, in JSON as in its text."""
    command = ["check", path, "--backend", "jax", *options]
    assert main([*command, "--json"]) == 0
    told: dict[str, dict[str, Any]] = json.loads(capsys.readouterr().out)["free_sizes"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, each in told.items():
        words = "yes" if each["padded"] else "no: "
        assert any(line.split("  ")[0] == name and words in line for line in lines)
    return told


GRAPHS = {
    "a transform": """g (float[b, n, 1] x) => (float[b, n, 2] y) <int64 axis = {1}>
        { e = Exp(x) y = DFT(e, , axis) }""",
    "no names": """g (float[?, 3] x, float[?, 3] z) => (float[?, 3] y, float[?, 3] w)
        { y = Softmax<axis = 0>(x) w = Neg(z) }""",
    "images": """g (float[n, 1, h, w] x) => (float[n, 1, i, j] y) <float[1, 1, 3, 3] k =
        {1, 2, 3, 4, 5, 6, 7, 8, 9}> { c = Conv(x, k) y = MaxPool<kernel_shape = [2, 2]>(c) }""",
    "a computed size": """g (float[1, past, 2] c, float[1, "past + 1", 2] m) =>
        (float[1, "past + 1", 2] y) <float[1, 1, 2] one = {1, 2}>
        { k = Concat<axis = 1>(c, one) y = Mul(k, m) }""",
    "fixed": "g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }",
}


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("a transform", [], {"b": None, "n": "(DFT)"}),
        ("a transform", ["x=2,5,1"], {"b": None, "n": "(DFT)"}),
        ("no names", [], {"axis 0 of x": None, "axis 0 of z": None}),
        ("images", ["x=1,1,8,9"], {"n": None, "h": None, "w": None}),
        ("a computed size", ["c=1,5,2", "m=1,6,2"], {"past": None}),
        ("fixed", [], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_check_names_what_prevents_padding(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shapes: list[str],
    expected: dict[str, str | None],
) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 22]> {GRAPHS[name]}'
    path = str(tmp_path / "model.onnx")
    onnx.save(onnx.parser.parse_model(text), path)
    told = sizes_told(path, capsys, *(["--shape", *shapes] if shapes else []))
    assert told.keys() == expected.keys()
    for key, node in expected.items():
        assert told[key]["padded"] == (node is None)
        assert (told[key]["reason"] is None) if node is None else node in told[key]["reason"]


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
