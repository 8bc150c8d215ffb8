"""`sardonyx extract`: a part of a model runs alone, and computes what it does in the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, parser

import sardonyx
from sardonyx.cli.main import main
from tests.cli.models import ENCODER, HEAD, saved

X = np.random.default_rng(0).standard_normal((2, 3, 48), np.float32)


def part_of(path: str, folder: Path, starts: Sequence[str], ends: Sequence[str], *more: str) -> str:
    """Extract a part of a model; return the path of it."""
    out = str(folder / "part.onnx")
    options = [f"--from={name}" for name in starts] + [f"--to={name}" for name in ends]
    assert main(["extract", path, "-o", out, *options, *more]) == 0
    onnx.checker.check_model(onnx.load(out))
    return out


def require_equal_values(path: str, part: str, feeds: Mapping[str, Any]) -> None:
    """Run the whole model, and its part on values of it; in onnxruntime too."""
    whole, cut = (sardonyx.load(each, backend="numpy") for each in (path, part))
    inputs, outputs = ([info.name for info in infos] for infos in (cut.inputs, cut.outputs))
    values = dict(zip(inputs, whole.run(inputs, feeds), strict=True)) if inputs else {}
    expected = whole.run(outputs, feeds)
    for one, other in zip(expected, cut.run(None, values), strict=True):
        np.testing.assert_array_equal(one, other)
    session = onnxruntime.InferenceSession(part, providers=["CPUExecutionProvider"])
    for one, other in zip(expected, session.run(outputs, values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("external", ["--inside", "--external"])
def test_between_two_values(
    external: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = part_of(ENCODER, tmp_path, ["layer_norm"], ["layer_norm_1"], external)
    assert "23 nodes, 10 weights, x, layer_norm -> layer_norm_1" in capsys.readouterr().out
    require_equal_values(ENCODER, part, {"x": X})


def test_from_the_inputs_and_to_the_outputs(tmp_path: Path) -> None:
    require_equal_values(ENCODER, part_of(ENCODER, tmp_path, [], ["layer_norm_1"]), {"x": X})
    require_equal_values(ENCODER, part_of(ENCODER, tmp_path, ["layer_norm_1"], []), {"x": X})


def test_nodes_and_patterns(tmp_path: Path) -> None:
    """A name of a node means its outputs, as in `Model.run`."""
    part = part_of(ENCODER, tmp_path, [], ["layer_norm_[12]"])
    assert [info.name for info in onnx.load(part).graph.output] == ["layer_norm_1", "layer_norm_2"]
    require_equal_values(ENCODER, part, {"x": X})


def test_a_weight_as_an_input(tmp_path: Path) -> None:
    name = "blocks.0.before.weight"
    part = part_of(ENCODER, tmp_path, [name], ["layer_norm"])
    graph = onnx.load(part).graph
    assert name in [info.name for info in graph.input]
    assert name not in [tensor.name for tensor in graph.initializer]
    require_equal_values(ENCODER, part, {"x": X})


SUBGRAPHS = """<ir_version: 10, opset_import: ["": 23, "own": 1]>
g (float[n] x, bool c, float[n] unused) => (float[n] y, float[n] z)
<float[1] w = {3.0}, float[1] v = {5.0}> {
  a = Add (x, w)
  b = Mul (x, v)
  i = If (c) <
    then_branch = t () => (float[n] p) { q = own.twice (a)  p = Add (q, w) },
    else_branch = e () => (float[n] r) { r = Neg (b) }
  >
  y = Exp (i)
  z = own.other (unused)
}
<domain: "own", opset_import: ["": 23, "own": 1]> twice (m) => (o) { o = own.sum (m, m) }
<domain: "own", opset_import: ["": 23]> sum (m, k) => (o) { o = Add (m, k) }
<domain: "own", opset_import: ["": 23]> other (m) => (o) { o = Neg (m) }
"""


@pytest.mark.parametrize("c", [True, False])
def test_subgraphs_and_functions_go_with_it(c: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(parser.parse_model(SUBGRAPHS), path)
    feeds = {name: np.float32([1, 2]) for name in ("x", "unused")} | {"c": np.array(c)}
    part = part_of(path, tmp_path, ["a"], ["y"])
    proto = onnx.load(part)
    assert {info.name for info in proto.graph.input} == {"x", "c", "a"}
    assert {f.name for f in proto.functions} == {"twice", "sum"}
    assert {tensor.name for tensor in proto.graph.initializer} == {"w", "v"}
    require_equal_values(path, part, feeds)
    inner = part_of(path, tmp_path, [], ["a"])
    assert not onnx.load(inner).functions
    require_equal_values(path, inner, feeds)


def test_weights_in_other_files(tmp_path: Path) -> None:
    """Written to a folder of its own, the part does not need the old one."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir(), new.mkdir()
    w = np.random.default_rng(1).standard_normal((64, 256), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"]),
         helper.make_node("MatMul", ["y", "u"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["n", 64])],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(w.T.copy(), "u")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = str(old / "m.onnx")
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    feeds = {"x": np.ones((2, 64), np.float32)}
    for option in ("--inside", "--external"):
        part = part_of(path, new, [], ["y"], option)
        require_equal_values(path, part, feeds)
        assert [t.name for t in onnx.load(part).graph.initializer] == ["w"]
    assert (new / "part.onnx.data").stat().st_size == w.nbytes


def test_types_that_nothing_declares(tmp_path: Path) -> None:
    """Of a sequence, which onnx infers; and behind an operator that onnx does not know."""
    path = saved(
        tmp_path,
        """g (float[n] x) => (float[m] y) {
          s = SequenceConstruct (x, x)
          y = ConcatFromSequence <axis = 0> (s)
        }""",
    )
    part = part_of(path, tmp_path, ["s"], ["y"])
    kind = onnx.load(part).graph.input[0].type
    assert kind.sequence_type.elem_type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    text = (
        HEAD.replace("own", "com.microsoft")
        + """g (float[n] x) => (float[n] y) {
          s = com.microsoft.QuickGelu (x)
          y = Exp (s)
        }"""
    )
    onnx.save(parser.parse_model(text), path)
    out = str(tmp_path / "part.onnx")
    # The checker refuses an input of unknown rank; onnxruntime and sardonyx run it.
    assert main(["extract", path, "-o", out, "--from", "s", "--to", "y"]) == 0
    require_equal_values(path, out, {"x": np.float32([1, 2])})


def test_a_part_of_a_model_that_cannot_run(tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2] x) => (float[2] y) { s = Exp (x) y = own.Gone (s) }")
    part = part_of(path, tmp_path, [], ["s"])
    np.testing.assert_allclose(sardonyx.load(part)(np.float32([0, 1])), np.exp([0, 1]), rtol=1e-6)


def test_in_place(tmp_path: Path) -> None:
    path = tmp_path / "part.onnx"
    path.write_bytes(Path(ENCODER).read_bytes())
    part_of(str(path), tmp_path, [], ["layer_norm"])
    assert len(onnx.load(path).graph.node) < 57


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ([], "pass one", 2),
        (["--from", "abacus"], "The model has no output 'abacus'", 1),
        (["--to", "nothing.*"], "The model has no output 'nothing.*'", 1),
        (["--to", ""], "The model has no output ''", 1),
        (["--to", "x"], "no node computes it", 1),
        (["--from", "layer_norm", "--to", "layer_norm"], "an input of the part too", 1),
        (["--from", "layer_norm_1", "--to", "layer_norm"], "does not lead to 'layer_norm'", 1),
        (["--to", "layer_norm", "-o", "no/such/folder/file"], "cannot be written", 1),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / "out.onnx")
    assert main(["extract", ENCODER, "-o", out, *arguments]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


def test_where_to_write_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", ENCODER, "--to", "layer_norm"]) == 2
    assert "--output" in capsys.readouterr().err


def test_values_inside_subgraphs_are_none_of_the_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(parser.parse_model(SUBGRAPHS), path)
    assert main(["extract", path, "-o", str(tmp_path / "o.onnx"), "--to", "q"]) == 1
    assert "inside a subgraph" in capsys.readouterr().err
