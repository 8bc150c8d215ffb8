"""A headless Chromium, and pages of the graph view in it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from sardonyx.display.graph_view.view import GraphView
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.viewing.drawing import picture_of
from tests.browser.waiting import wait_until

CHROMIUM = shutil.which("chromium")
MODELS = Path(__file__).parents[1] / "models"

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the PATH")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install 'sardonyx[browser]'")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_view(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a view, and fails if the page reports an error or asks for anything else."""
    faults: list[str] = []
    pages: list[Any] = []

    def note(message: Any) -> None:
        if message.type == "error":
            faults.append(message.text)

    def open_(view: GraphView, *, dark: bool = False) -> Any:
        path = view.save(tmp_path / "graph.html")
        size = {"width": 1100, "height": 760}
        page = browser.new_page(viewport=size, color_scheme="dark" if dark else "light")
        pages.append(page)
        page.on("console", note)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        requests: list[str] = []
        page.goto(path.as_uri())
        wait_until(page, "globalThis.graphView?.painted")
        assert requests == [path.as_uri()]
        page.requests = requests
        return page

    yield open_
    for page in pages:
        assert len(page.requests) == 1, page.requests
        page.close()
    assert faults == []


def view_of(model: onnx.ModelProto | Path) -> GraphView:
    """The view of a model as the command line shows it, which need not run."""
    proto = onnx.load(model) if isinstance(model, Path) else model
    return GraphView(lambda: picture_of(load_source(proto), "graph"))
