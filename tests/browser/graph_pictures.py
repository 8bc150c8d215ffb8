"""Draws docs/images/graph_view: the graph view of three networks, light and dark.

python -m tests.browser.graph_pictures FOLDER, in which `python -m benchmarks.networks` has left
resnet50.onnx and bert_base.onnx.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx.display.graph_view.view import GraphView
from tests.browser.conftest import MODELS
from tests.browser.pictures import write
from tests.browser.waiting import wait_until

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "graph_view"
SIZE = {"width": 1200, "height": 760}
BERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SETTLED = 600  # milliseconds, after which the sheet has come to rest
# Selects the first item with this title, and unfolds it.
SHOW = """title => {
  const { items, itemOf } = graphView.graph;
  const { id } = items.find(item => (item.node?.operator ?? item.group?.name) === title);
  const shown = items[itemOf[id] ?? id];
  graphView.reveal(shown.id);
  if (shown.group && !shown.open) graphView.toggle(shown.id);
}"""


def views(networks: Path) -> Iterator[tuple[str, GraphView, str]]:
    """The name of each picture, the view, and what its panel shows."""
    resnet = sardonyx.load(networks / "resnet50.onnx")
    yield "resnet", resnet.view(pixel_values=(1, 3, 224, 224)), "Conv"
    bert = sardonyx.load(networks / "bert_base.onnx")
    yield "bert", bert.view(**dict.fromkeys(BERT_INPUTS, (1, 128))), "layer.0"
    branch = sardonyx.load(MODELS / "cond_dynamo.onnx")
    yield "control_flow", branch.view(x=(2, 4)), "If"


def draw(networks: Path, folder: Path = FOLDER) -> None:
    """Write a picture per network and theme."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, view, shown in views(networks):
            for theme in ("light", "dark"):
                page: Any = browser.new_page(viewport=SIZE, color_scheme=theme)
                page.set_content(view.html)
                wait_until(page, "globalThis.graphView?.painted")
                page.evaluate(SHOW, shown)
                page.wait_for_timeout(SETTLED)
                write(page.screenshot(), folder / f"{name}_{theme}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
