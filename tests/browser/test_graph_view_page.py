"""The graph view as its reader meets it: in a browser."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from tests.browser.conftest import MODELS, Open, view_of
from tests.browser.waiting import unfold_all, wait_until

ENCODER = MODELS / "encoder_torchscript.onnx"

# The titles of all boxes on the sheet.
TITLES = """[...graphView.scene.place.values()].map(
  b => b.item.node?.operator ?? b.item.group.name)"""
# How many colours a coarse grid of the canvas has: a blank one has one.
COLOURS = """() => {
  const canvas = document.getElementById("canvas"), c = canvas.getContext("2d");
  const data = c.getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
  for (let i = 0; i < data.length; i += 4 * 7) found.add(data.slice(i, i + 3).join());
  return found.size;
}"""
# The middle of an item's head, on the screen.
POINT = """id => {
  const { camera, scene, canvas } = graphView, box = scene.place.get(id);
  const { left, top } = canvas.getBoundingClientRect(), middle = box.x + box.width / 2;
  return [left + (middle - camera.x) * camera.scale, top + (box.y + 14 - camera.y) * camera.scale];
}"""


def click(page: Any, item: int) -> None:
    page.evaluate("id => graphView.camera.show(graphView.scene.place.get(id))", item)
    page.wait_for_timeout(350)
    page.mouse.click(*page.evaluate(POINT, item))


def item_of(page: Any, operator: str) -> int:
    found: int = page.evaluate(
        "name => graphView.graph.items.find(i => i.node?.operator === name).id", operator
    )
    return found


def test_nodes_and_edges_are_drawn(open_view: Open) -> None:
    page = open_view(view_of(MODELS / "cnn_dynamo.onnx"))
    painted = page.evaluate("graphView.painted")
    assert painted["boxes"] > 3
    assert painted["edges"] > 3
    assert page.evaluate(COLOURS) > 20
    assert "nodes" in page.inner_text("#bar .count")


def test_groups_fold_and_unfold(open_view: Open) -> None:
    page = open_view(view_of(ENCODER))
    page.click("text=Fold all")
    folded = page.evaluate("graphView.scene.place.size")
    unfold_all(page)
    assert page.evaluate("graphView.scene.place.size") > 2 * folded
    assert "attention" in page.evaluate(TITLES)
    page.click("text=Fold all")
    assert page.evaluate("graphView.scene.place.size") == folded


def test_what_leaves_an_open_group_is_labelled_once(open_view: Open) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="/first/Relu"),
        helper.make_node("Cast", ["a"], ["b"], name="/first/Cast", to=TensorProto.INT32),
        helper.make_node("Cast", ["b"], ["c"], name="/second/Cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["c"], ["y"], name="/second/Relu"),
    ]
    graph = helper.make_graph(nodes, "main", ends[:1], ends[1:])
    model = sardonyx.load(helper.make_model(graph), backend="numpy")
    page = open_view(model.view(x=(2, 3)))
    unfold_all(page)
    labels = page.evaluate("""() => {
      const { context } = graphView, { fillText } = context, found = [];
      graphView.camera.scale = 1;
      context.fillText = (text) => found.push(text);
      graphView.paint();
      context.fillText = fillText;
      return found;
    }""")
    assert labels.count("int32[2, 3]") == 1, labels


def test_a_double_click_unfolds_a_group(open_view: Open) -> None:
    page = open_view(view_of(ENCODER))
    page.click("text=Fold all")
    page.wait_for_timeout(350)
    before = page.evaluate("graphView.scene.place.size")
    group = page.evaluate("graphView.scene.boxes.find(b => b.item.group).item.id")
    page.mouse.dblclick(*page.evaluate(POINT, group))
    assert page.evaluate("graphView.scene.place.size") > before
    assert page.evaluate("id => graphView.graph.items[id].open", group)


@pytest.mark.parametrize("text", ["MatMul", "attention", "float32[1, 8, 16]", "float32[1,8,16]"])
def test_search_jumps_to_a_node_and_unfolds_it(text: str, open_view: Open) -> None:
    model = sardonyx.load(ENCODER, backend="numpy")
    names = [info.name for info in model.inputs]
    page = open_view(model.view(**{names[0]: (1, 8, 16)}))
    page.click("text=Fold all")
    page.keyboard.press("/")
    page.keyboard.type(text)
    assert page.locator(".results li").count() > 0
    page.keyboard.press("Enter")
    selected = page.evaluate("graphView.selected")
    assert page.evaluate("id => graphView.scene.place.has(id)", selected)
    assert page.is_visible("#panel")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.fill("#search", "no such thing")
    assert page.inner_text(".results") == "Nothing found"


def test_a_click_shows_attributes_values_and_histograms(open_view: Open) -> None:
    page = open_view(view_of(MODELS / "cnn_dynamo.onnx"))
    unfold_all(page)
    page.wait_for_timeout(350)
    click(page, item_of(page, "Conv"))
    shown = page.inner_text("#panel")
    assert "kernel_shape" in shown
    assert "deviation" in shown
    assert page.locator("#panel svg rect").count() > 8
    assert page.inner_text("#panel h2") == "Conv"
    page.click("#panel .close")
    assert not page.is_visible("#panel")


def test_programs_show_kinds_segments_and_profiles(open_view: Open) -> None:
    model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    x = np.zeros((1, 8, 48), np.float32)
    first = next(n.name for n in model.view(x).picture.boxes if n.operator == "MatMul")
    page = open_view(model.view(x, profile={first: (0.25, 4096)}))
    options = page.locator("#colour option").all_inner_texts()
    assert options == ["kind", "segment", "operator", "time", "memory"]
    assert "device" in page.inner_text("#legend")
    page.select_option("#colour", "segment")
    assert "segment 0 on numpy" in page.inner_text("#legend")
    page.evaluate(
        "name => graphView.reveal(graphView.graph.nodes.findIndex(n => n.name === name))",
        first,
    )
    assert "250 ms" in page.inner_text("#panel")
    assert "4.0 KiB" in page.inner_text("#panel")


def test_the_page_is_dark_where_the_reader_wants_it(open_view: Open) -> None:
    corner = "[...graphView.context.getImageData(2, 2, 1, 1).data].slice(0, 3)"
    assert max(open_view(view_of(ENCODER), dark=True).evaluate(corner)) < 60
    page = open_view(view_of(ENCODER))
    assert min(page.evaluate(corner)) > 200
    page.click("#theme")
    page.evaluate("graphView.paint()")
    assert max(page.evaluate(corner)) < 60


def test_keys_walk_zoom_and_fold(open_view: Open) -> None:
    page = open_view(view_of(MODELS / "mlp_dynamo.onnx"))
    page.focus("#canvas")
    page.keyboard.press("ArrowDown")
    start = page.evaluate("graphView.selected")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("graphView.selected") not in (None, start)
    page.keyboard.press("ArrowUp")
    assert page.evaluate("graphView.selected") == start
    page.wait_for_timeout(350)
    scale = page.evaluate("graphView.camera.scale")
    page.keyboard.press("+")
    assert page.evaluate("graphView.camera.scale") > scale
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("Escape")
    assert page.evaluate("graphView.selected") is None


def test_wheel_and_drag_move_the_sheet(open_view: Open) -> None:
    page = open_view(view_of(ENCODER))
    x, scale = page.evaluate("[graphView.camera.x, graphView.camera.scale]")
    page.mouse.move(500, 400)
    page.mouse.wheel(0, 200)
    wait_until(page, "scale => graphView.camera.scale < scale", arg=scale)
    page.mouse.down()
    page.mouse.move(650, 400, steps=4)
    page.mouse.up()
    assert page.evaluate("graphView.camera.x") != x


def test_branches_are_groups_inside_their_node(open_view: Open) -> None:
    page = open_view(view_of(MODELS / "cond_dynamo.onnx"))
    unfold_all(page)
    titles = page.evaluate(TITLES)
    assert {"If", "then_branch", "else_branch", "Tanh", "Relu"} <= set(titles)
    inside = page.evaluate(
        """() => {
          const boxes = [...graphView.scene.place.values()];
          const box = name => boxes.find(b => b.item.node?.operator === name);
          const [outer, inner] = [box("If"), box("Tanh")];
          const right = b => b.x + b.width;
          return inner.x > outer.x && inner.y > outer.y && right(inner) < right(outer);
        }"""
    )
    assert inside


HOSTILE = [
    "</script><script>globalThis.broken = 1</script>",
    "<!--<script>",
    "<img src=x onerror='globalThis.broken = 1'>",
    "{{data}}{{script}}",
    "a\u2028b'\"`&amp;\\",
    "__proto__",
]


def hostile_model() -> onnx.ModelProto:
    nodes, previous = [], "x"
    for name in HOSTILE:
        nodes.append(
            helper.make_node("Gone", [previous, "w"], [name], f"{name}/a/{name}", text=name)
        )
        previous = name
    weight = numpy_helper.from_array(np.float32([1, np.nan, np.inf]), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["</title>"])
    y = helper.make_tensor_value_info(previous, TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "</title><script>", [x], [y], [weight]))


def test_names_are_text_and_never_markup(open_view: Open) -> None:
    page = open_view(view_of(hostile_model()))
    assert page.evaluate("globalThis.broken") is None
    names = page.evaluate("graphView.graph.nodes.map(n => n.attributes?.[0]?.[1])")
    assert set(HOSTILE) <= set(names)
    for item in page.evaluate("graphView.graph.items.map(i => i.id)"):
        page.evaluate("id => graphView.reveal(id)", item)
    page.fill("#search", "gone")
    assert page.locator(".results li").count() == len(HOSTILE)
    assert page.locator("img, #panel script").count() == 0
    assert page.evaluate("globalThis.broken") is None


def test_two_views_in_one_notebook_are_apart(browser: Any) -> None:
    first, second = (view_of(MODELS / f"{name}.onnx") for name in ("mlp_dynamo", "cnn_dynamo"))
    page = browser.new_page()
    page.set_content(first._repr_html_() + second._repr_html_())
    frames = page.frames[1:]
    for frame in frames:
        wait_until(frame, "() => globalThis.graphView?.painted")
    frames[0].evaluate("graphView.select(0)")
    assert [frame.evaluate("graphView.selected") for frame in frames] == [0, None]
    counts = [frame.evaluate("graphView.graph.nodes.length") for frame in frames]
    assert counts == [len(first.picture.boxes), len(second.picture.boxes)]
    assert page.evaluate("Object.keys(globalThis).filter(n => /graphView|dagre/.test(n))") == []
    assert not page.locator(".sx-no-frame").first.is_visible()
    page.close()


@pytest.mark.parametrize("system", ["light", "dark"])
def test_a_frame_follows_the_theme_of_its_notebook(system: str, browser: Any) -> None:
    """Which need not be the system's, and changes while the notebook is open."""
    page = browser.new_page(color_scheme=system)
    themes = "<style>body { color: #111 } body.night { color: #ddd }</style>"
    view = view_of(MODELS / "mlp_dynamo.onnx")
    page.set_content(f"{themes}<body>{view._repr_html_()}{view._repr_html_()}</body>")
    wait_until(page, "sardonyxFrames.size === 2")
    first, second = page.frames[1:]
    has = "theme => document.documentElement.dataset.theme === theme"
    for frame in (first, second):
        wait_until(frame, has, arg="light")
    page.evaluate("document.body.className = 'night'")
    for frame in (first, second):
        wait_until(frame, has, arg="dark")
    second.evaluate("document.getElementById('theme').click()")
    page.evaluate("document.body.className = ''")
    wait_until(first, has, arg="light")
    page.evaluate("document.body.className = 'night'")
    wait_until(first, has, arg="dark")
    assert second.evaluate(has, "light")  # what its reader chose
    page.evaluate("document.querySelector('iframe').remove()")
    page.evaluate("document.body.className = ''")
    wait_until(page, "sardonyxFrames.size === 1")
    page.close()


def test_without_frames_and_styles_a_sentence_is_seen(browser: Any) -> None:
    """As notebooks that are not trusted show it."""
    shown = view_of(MODELS / "mlp_dynamo.onnx")._repr_html_()
    page = browser.new_page()
    page.set_content(re.sub("<style>.*?</style>|<iframe.*</iframe>", "", shown, flags=re.DOTALL))
    assert page.locator("iframe").count() == 0
    assert "trust the notebook" in page.inner_text("body")
    page.close()


def test_a_notebook_shows_it_in_a_frame(open_view: Open, browser: Any) -> None:
    page = browser.new_page()
    page.set_content(f"<p>'a cell'</p>{view_of(hostile_model())._repr_html_()}")
    frame = page.frames[-1]
    wait_until(frame, "globalThis.graphView?.painted")
    assert frame.evaluate("graphView.graph.nodes.length") == len(HOSTILE) + 2
    assert page.evaluate("globalThis.graphView") is None
    page.close()
