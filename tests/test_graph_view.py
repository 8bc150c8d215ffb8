"""The data and the page of the graph view, without a browser."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import sardonyx
from sardonyx.cli.main import main
from sardonyx.display.graph_view.histograms import summary
from sardonyx.display.graph_view.page import SCRIPTS, in_script
from sardonyx.display.graph_view.picture import Box, Group, Picture
from sardonyx.display.graph_view.runs import MOST_MEMBERS
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.graph.viewing.drawing import picture_of

MODELS = Path(__file__).parent / "models"
ASSETS = files("sardonyx.display.graph_view")


def parsed(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 22, "my": 1]> {body}')


def node(picture: Picture, operator: str) -> Box:
    return next(box for box in picture.boxes if box.operator == operator)


def groups_around(picture: Picture, box: Box) -> list[str]:
    names, group = [], box.group
    while group > 0:
        names.append(picture.groups[group].name)
        group = picture.groups[group].parent
    return names[::-1]


def data_of(html: str) -> dict[str, object]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    data: dict[str, object] = json.loads(text)
    return data


def test_all_scripts_are_in_the_page_and_their_names_differ() -> None:
    """They are one module there, in which no name may be declared twice."""
    present = {entry.name for entry in ASSETS.iterdir() if entry.name.endswith(".js")}
    assert present == {*SCRIPTS, "dagre.min.js", "notebook.js"}
    declared = []
    for name in SCRIPTS:
        text = ASSETS.joinpath(name).read_text("utf-8")
        declared += re.findall(r"^(?:export )?(?:function|class|const|let) (\w+)", text, re.M)
        assert len(text.splitlines()) < 300, name
    assert len(declared) == len(set(declared))


def test_the_page_asks_for_nothing() -> None:
    html = sardonyx.load("examples/encoder.onnx", backend="numpy").view().html
    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", html)
    assert "Permission is hereby granted" in html
    assert "sourceMappingURL" not in html


@pytest.mark.parametrize("text", ["</script>", "<!--", "\ud800", "\u2028", "{{data}}"])
def test_no_text_ends_the_script(text: str) -> None:
    written = in_script({text: text})
    assert "<" not in written
    assert json.loads(written) == {text: text}


def test_kinds_shapes_and_segments_are_those_of_the_program() -> None:
    model = sardonyx.load(
        parsed(
            """g (float[n, 4] x) => (float[m] y) {
              shape = Shape (x)
              same = Identity (x)
              twice = Add (same, same)
              flat = Constant <value_ints: ints = [-1]> ()
              y = Reshape (twice, flat)
            }"""
        ),
        backend="numpy",
    )
    program = model.trace(np.zeros((3, 4), np.float32))
    picture = program.view().picture
    kinds = {box.operator: box.kind for box in picture.boxes if box.role == "node"}
    assert kinds == {"Shape": "static", "Identity": "alias", "Add": "device", "Reshape": "alias"}
    add = node(picture, "Add")
    assert add.segment == 0
    assert picture.flows[add.outputs[0].value or 0].type == "float32[3, 4]"
    constant = picture.flows[node(picture, "Reshape").inputs[1].value or 0]
    assert constant.content == "[-1]"
    assert {box.kind for box in model.view().picture.boxes} == {None}
    assert node(model.view(x=(3, 4)).picture, "Add").kind == "device"


def test_scopes_of_torch_are_groups() -> None:
    scopes = "['', 'net', 'net.layer.0', 'net.layer.0.mlp', 'linear']"
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(4)]
    for each in nodes[:2]:
        each.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("v0", "v4"))
    between = helper.make_tensor_value_info("v2", TensorProto.FLOAT, ["batch", 2])
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[between])
    picture = picture_of(load_source(*read_model(helper.make_model(graph))), "g")
    assert groups_around(picture, picture.boxes[1]) == ["net/layer.0/mlp/linear"]
    assert groups_around(picture, picture.boxes[4]) == []
    assert picture.flows[picture.boxes[2].outputs[0].value or 0].type == "float32[batch, 2]"


def test_functions_are_drawn_at_each_call() -> None:
    proto = parsed(
        """g (float[2] x) => (float[2] y) { a = my.f (x) b = my.f (a) y = Neg (b) }
        <domain: "my", opset_import: ["": 22]> f (p) => (q) { r = Abs (p) q = Exp (r) }"""
    )
    program = sardonyx.load(proto, backend="numpy").trace(np.ones(2, np.float32))
    picture = program.view().picture
    bodies = [group for group in picture.groups if group.kind == "function"]
    assert len(bodies) == 2
    assert [box.kind for box in picture.boxes if box.operator == "Abs"] == ["device"] * 2


def test_subgraphs_know_the_values_around_them() -> None:
    proto = parsed(
        """g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = a () => (float[2] t) { t = Neg (x) },
            else_branch = b () => (float[2] e) { e = Abs (x) }
          >
        }"""
    )
    picture = sardonyx.load(proto, backend="numpy").view().picture
    (x,) = [box for box in picture.boxes if box.name == "x"]
    assert node(picture, "Neg").inputs[0].value == x.outputs[0].value
    assert [g.kind for g in picture.groups] == ["graph", "control", "branch", "branch"]


def test_long_runs_are_divided() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(1500)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("v0", "v1500"))
    graph = helper.make_graph(nodes, "g", [x], [y])
    picture = picture_of(load_source(*read_model(helper.make_model(graph))), "g")
    sizes = [0] * len(picture.groups)
    for box in picture.boxes:
        sizes[box.group] += 1
    for group in picture.groups[1:]:
        sizes[group.parent] += 1
    assert max(sizes) <= MOST_MEMBERS + 2
    assert picture.nodes == 1500
    order = [box.group for box in picture.boxes if box.role == "node"]
    assert order == sorted(order)


def test_many_inputs_stand_in_one_group() -> None:
    names = [f"x{i}" for i in range(20)]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in (*names, "y")]
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", infos[:-1], infos[-1:])
    picture = picture_of(load_source(*read_model(helper.make_model(graph))), "g")
    assert picture.groups[1] == Group("20 inputs", 0, "run")


DTYPES = [np.float32, np.float64, np.int8, bool, ml_dtypes.bfloat16, ml_dtypes.int4]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (40, 5), (300, 301)])
def test_weights_are_summed_up(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    shown = summary(array)
    assert shown["count"] == array.size
    if array.size:
        assert sum(shown["bins"]) == min(array.size, 2**15)
        assert 0 <= shown["least"] <= shown["mean"] <= shown["most"] <= 1
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize("values", [["a", "b"], [np.nan, np.inf], [1e308, -1e308], [1j, 2]])
def test_unusual_weights_are_summed_up(values: list[object]) -> None:
    json.dumps(summary(np.array(values)), allow_nan=False)


def test_a_profile_is_shown_at_its_nodes() -> None:
    model = sardonyx.load(MODELS / "mlp_dynamo.onnx", backend="numpy")
    name = next(box.name for box in model.view().picture.boxes if box.role == "node")
    boxes = model.view(profile={name: (0.5, 8), "gone": 1.0}).picture.boxes
    assert [(b.seconds, b.bytes) for b in boxes if b.seconds is not None] == [(0.5, 8)]


def test_the_view_shows_current_weights() -> None:
    model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    name = next(iter(model.params))
    model.params[name] = np.full_like(model.params[name], 7)
    (flow,) = [flow for flow in model.view().picture.flows if flow.name == name]
    assert flow.weight is not None
    assert flow.weight["least"] == flow.weight["most"] == 7


def test_the_command_line_shows_models_that_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gone.onnx"
    onnx.save(parsed("g (float[2] x) => (float[2] y) { y = my.Gone (x) }"), path)
    assert main(["show", str(path), "--html"]) == 0
    assert "1 nodes" in capsys.readouterr().out
    data = data_of((tmp_path / "gone.html").read_text("utf-8"))
    assert [n["operator"] for n in data["nodes"]] == ["Input", "Gone", "Output"]
    assert main(["show", str(path), "--html", str(tmp_path / "no" / "where.html")]) == 1
    assert main(["show", str(path), "--shape", "x=2"]) == 2


def test_the_command_line_shows_programs(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    command = ["show", "examples/encoder.onnx", "--html", str(out), "--shape", "x=1,8,48"]
    assert main([*command, "--backend", "numpy"]) == 0
    assert data_of(out.read_text("utf-8"))["segments"] == ["segment 0 on numpy"]


def test_text_and_notebook() -> None:
    view = sardonyx.load("examples/encoder.onnx", backend="numpy").view()
    assert "nodes" in repr(view)
    assert len(repr(view)) < 200
    shown = view._repr_html_()
    assert "<iframe" in shown
    shown = shown[shown.index("<iframe") :]
    assert shown.count("'") == 2 + shown.count("srcdoc='") - 1
