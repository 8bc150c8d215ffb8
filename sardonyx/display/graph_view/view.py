"""`GraphView`: an interactive picture of a graph, for notebooks and browsers."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from sardonyx.display.folding import fold
from sardonyx.display.graph_view.page import notebook_script, page
from sardonyx.display.graph_view.picture import Picture
from sardonyx.display.markup import Html, element, muted

# Maximum nodes and characters of a picture in the display of a model or a program itself: a
# notebook stores what its cells show.
MOST_NODES = 1000
LONGEST_EMBEDDED = 500_000

# Notebooks that are not trusted, and pages such as GitHub's, show neither frames nor styles: there
# the sentence is seen.
_WITHOUT_FRAME = (
    "<style>.sx-no-frame{display:none}</style>"
    '<p class="sx-no-frame">The picture of the graph is not shown, as this notebook is not '
    "trusted: run the cell, or trust the notebook.</p>"
)


class GraphView:
    """An interactive picture of a model or a program, in one page that needs no network.

    A notebook shows it in the cell; `save` writes the page for a browser. The page is made when it
    is first asked for.

    >>> import sardonyx
    >>> view = sardonyx.load("examples/encoder.onnx", backend="numpy").view()
    >>> view.html.startswith("<!DOCTYPE html>")
    True
    """

    def __init__(self, draw: Callable[[], Picture], height: int = 640) -> None:
        self._draw = draw
        self.height = height
        """The height of the picture in a notebook, in pixels."""

    @cached_property
    def picture(self) -> Picture:
        """The nodes, groups and values, as plain data."""
        return self._draw()

    @cached_property
    def html(self) -> str:
        """The whole page."""
        return page(self.picture)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, which any browser opens; return its path.

        >>> import sardonyx, tempfile
        >>> view = sardonyx.load("examples/encoder.onnx", backend="numpy").view()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     view.save(f"{folder}/encoder.html").name
        'encoder.html'
        """
        target = Path(path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def embedded(self, count: int) -> Html:
        """Return the picture as a part of an object's display; of `count` nodes, if these are few.

        >>> import sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> "call .view() to see them" in model.view().embedded(5000)
        True
        """
        frame = self._repr_html_() if count <= MOST_NODES else ""
        if not frame or len(frame) > LONGEST_EMBEDDED:
            return element("p", muted(f"{count:,} nodes: call .view() to see them as a picture"))
        return fold("graph", Html(f"<div>{frame}</div>"), opened=True)

    def __repr__(self) -> str:
        shown = self.picture
        return (
            f"<graph view of {shown.title}: {shown.nodes:,} nodes; a notebook shows it, and "
            '.save("graph.html") writes a page>'
        )

    def _repr_html_(self) -> str:
        """Return the page in a frame, which separates its style and scripts from the notebook's."""
        # In single quotes, since a page has thousands of double quotes.
        inner = self.html.replace("&", "&amp;").replace("'", "&#39;")
        title = html.escape(f"Graph of {self.picture.title}")
        return (
            f"{_WITHOUT_FRAME}{notebook_script()}"
            f'<iframe class="sx-graph" title="{title}" loading="lazy" '
            'sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0;border-radius:8px" '
            f"srcdoc='{inner}'></iframe>"
        )
