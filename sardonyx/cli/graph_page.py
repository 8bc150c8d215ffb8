"""The graph of a model as an interactive page."""

from __future__ import annotations

from pathlib import Path

from sardonyx.api import load
from sardonyx.cli.shapes import Shapes
from sardonyx.display.graph_view.view import GraphView
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.graph.viewing.drawing import picture_of
from sardonyx.printable import LONGEST_NAME, printable


def write_page(path: str, output: str, shapes: Shapes, backend: str | None) -> str:
    """Write the page and return a report; a model that cannot run is shown too.

    With the shapes of a call the page shows its program.
    """
    target = Path(output) if output else Path(path).with_suffix(".html")
    if shapes:
        model = load(path, backend=backend)
        arrays = stand_ins(shapes, (*model.inputs, *model.optional_inputs))
        view = model.trace(**arrays).view()
    else:
        source = load_source(*read_model(path))
        title = printable(source.graph.name or Path(path).stem, LONGEST_NAME)
        view = GraphView(lambda: picture_of(source, title))
    try:
        view.save(target)
    except OSError as error:
        raise InvalidInput(f"The page '{target}' cannot be written: {error.strerror}.") from None
    return (
        f"{printable(str(target))}: {view.picture.nodes:,} nodes, {target.stat().st_size:,} bytes"
    )
