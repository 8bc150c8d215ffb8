"""Graphs of thousands of nodes in the graph view: all unfolded, while the page responds."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sardonyx.display.graph_view.view import GraphView
from tests.browser.conftest import Open, view_of
from tests.browser.waiting import unfold_all

SECONDS = 5.0
# How many colours a coarse grid of the canvas has: a blank one has one.
COLOURS = """() => {
  const canvas = document.getElementById("canvas"), c = canvas.getContext("2d");
  const data = c.getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
  for (let i = 0; i < data.length; i += 4 * 7) found.add(data.slice(i, i + 3).join());
  return found.size;
}"""
# The longest time in which the page did not respond, from now on.
WATCH = """() => {
  let last = performance.now();
  globalThis.longest = 0;
  const tick = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    setTimeout(tick);
  };
  tick();
}"""
# Pairs of boxes of one group that overlap.
OVERLAPS = """() => graphView.graph.items.filter(i => i.layout).flatMap(({ layout }) =>
  layout.children.flatMap((a, i, all) => all.slice(i + 1).filter(b =>
    a.x + 1 < b.x + b.width && b.x + 1 < a.x + a.width
    && a.y + 1 < b.y + b.height && b.y + 1 < a.y + a.height))).length"""


def large_model(*, scoped: bool) -> onnx.ModelProto:
    nodes, previous = [], "x"
    for i in range(5000):
        name = f"/block.{i // 500}/layer.{i // 20 % 25}/op{i}" if scoped else f"n{i}"
        kind = ("Relu", "Abs", "Sigmoid", "Tanh")[i % 4]
        inputs = [previous, f"v{i - 7}"] if i % 5 == 0 and i > 7 else [previous]
        nodes.append(helper.make_node("Add" if len(inputs) == 2 else kind, inputs, [f"v{i}"], name))
        previous = f"v{i}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info(previous, TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "large", [x], [y]))


@pytest.mark.parametrize("scoped", [True, False], ids=["scoped", "flat"])
def test_5000_nodes_are_shown_soon(scoped: bool, open_view: Open) -> None:
    view: GraphView = view_of(large_model(scoped=scoped))
    assert len(view.html) < 2_000_000
    begun = time.monotonic()
    page = open_view(view)
    assert time.monotonic() - begun < SECONDS
    assert 5 < page.evaluate("graphView.scene.place.size") < 200
    last = page.evaluate("graphView.graph.nodes.findIndex(n => n.name?.match(/4999$/))")
    page.evaluate("id => graphView.reveal(id)", last)
    assert page.evaluate("id => graphView.scene.place.has(id)", last)
    assert page.evaluate(COLOURS) > 10


@pytest.mark.parametrize("scoped", [True, False], ids=["scoped", "flat"])
def test_5000_nodes_unfold_while_the_page_responds(scoped: bool, open_view: Open) -> None:
    page = open_view(view_of(large_model(scoped=scoped)))
    page.evaluate(WATCH)
    begun = time.monotonic()
    unfold_all(page)
    assert time.monotonic() - begun < SECONDS
    assert page.evaluate("longest") < 1000
    assert page.evaluate("graphView.scene.place.size") > 5000
    assert page.evaluate(OVERLAPS) == 0


def irregular_model(count: int) -> onnx.ModelProto:
    """Nodes that read up to three values, near and far."""
    random = np.random.default_rng(0)
    nodes = []
    for i in range(count):
        far = random.geometric(0.05 if i % 3 else 0.5, size=i % 3 + 1)
        inputs = [f"v{i - step}" if step <= i else "x" for step in far]
        nodes.append(helper.make_node("Sum", inputs, [f"v{i}"], f"/b{i // 400}/p{i // 13}/n{i}"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info(f"v{count - 1}", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "irregular", [x], [y]))


def test_the_layout_of_vast_graphs_keeps_directions(open_view: Open) -> None:
    page = open_view(view_of(irregular_model(3000)))
    unfold_all(page)
    assert page.evaluate("graphView.graph.isVast")
    assert page.evaluate(OVERLAPS) == 0
    up, edges = page.evaluate(
        """() => {
          const { place, edges } = graphView.scene;
          const box = end => place.get(end.item);
          const ends = edges.map(({ edge }) => [box(edge.from), box(edge.to)]);
          const inside = ends.filter(([from, to]) => from && to);
          const up = inside.filter(([from, to]) => to.y < from.y);
          return [up.length, inside.length];
        }"""
    )
    assert edges > 1000
    # Groups that read each other close cycles; between single nodes there is none.
    assert up < 0.02 * edges


def test_folding_stops_an_unfolding_that_is_under_way(open_view: Open) -> None:
    page = open_view(view_of(irregular_model(3000)))
    page.evaluate("() => { graphView.openAll(true); graphView.openAll(false); }")
    page.wait_for_timeout(500)
    assert page.evaluate("graphView.scene.frames.length") == 0
    page.evaluate(
        """() => {
          const { graph } = graphView;
          graphView.openAll(true);
          graphView.reveal(graph.nodes.length - 1);
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("graphView.scene.place.has(graphView.selected)")
