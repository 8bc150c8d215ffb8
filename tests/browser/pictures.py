"""Draws docs/images/displays: what a notebook shows of each kind of object, light and dark.

python -m tests.browser.pictures
"""

from __future__ import annotations

import shutil
from html import escape
from io import BytesIO
from pathlib import Path

import numpy as np

import sardonyx

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "displays"
X = np.linspace(-1, 1, 384, dtype=np.float32).reshape(1, 8, 48)
# As JupyterLab colours its pages.
PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>
:root {{ color-scheme: light dark }}
body {{ font: 13px system-ui, sans-serif; margin: 12px; width: 860px;
  background: light-dark(#fff, #111); color: light-dark(#111, #eee) }}
body > pre {{ margin: 14px 0 4px; padding: 6px 10px; border-radius: 3px;
  background: light-dark(#f5f5f5, #212121) }}
</style>{cells}"""
# The graph view has pictures of its own.
FOLD_GRAPHS = """() => document.querySelectorAll("iframe").forEach(frame => {
  frame.closest("details").open = false;
})"""


def pages() -> dict[str, dict[str, object]]:
    """Return the objects of each picture by the code that shows them."""
    model = sardonyx.load("examples/encoder.onnx", compile="now")
    ops = sardonyx.opset(20)
    largest = sardonyx.record(lambda x: ops.TopK(x, np.int64([3])), {"x": X[0, :2]})
    fn, _ = sardonyx.to_jax(model)
    program = model.trace(X)
    model(X)
    return {
        "graphs": {"model": model, "program": program, "program.segments[0]": program.segments[0]},
        "figures": {
            "model.params": model.params,
            "model.stats()": model.stats(),
            "model.memory(x)": model.memory(X),
            "largest(x)": largest(X[0, :2]),
        },
        "functions": {
            "fn, params = sardonyx.to_jax(model); fn": fn,
            "sardonyx.export(model)": sardonyx.export(model, {"x": X.shape}, platforms=["cpu"]),
            "model.profile(x)": model.profile(X),
            'sardonyx.compare(model, "numpy", x)': sardonyx.compare(model, "numpy", X),
        },
    }


def html_of(objects: dict[str, object]) -> str:
    """Return a page with a cell for each object, whose graph is folded."""
    cells = (
        f"<pre>{escape(text)}</pre>{shown._repr_html_()}"  # type: ignore[attr-defined]
        for text, shown in objects.items()
    )
    return PAGE.format(cells="".join(cells))


def draw(folder: Path = FOLDER) -> None:
    """Write a picture per page, light and dark."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, objects in pages().items():
            for theme in ("light", "dark"):
                size = {"width": 884, "height": 400}
                page = browser.new_page(viewport=size, color_scheme=theme)
                page.set_content(html_of(objects))
                page.evaluate(FOLD_GRAPHS)
                write(page.screenshot(full_page=True), folder / f"{name}_{theme}.png")
                page.close()
        browser.close()


def write(screenshot: bytes, path: Path) -> None:
    """Write a picture with a palette of 256 colours, which makes the file half as large."""
    from PIL import Image  # noqa: PLC0415

    Image.open(BytesIO(screenshot)).convert("RGB").quantize().save(path, optimize=True)


if __name__ == "__main__":
    draw()
