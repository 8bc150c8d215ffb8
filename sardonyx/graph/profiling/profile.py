"""`Profile`: where the time of a call goes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from sardonyx.graph.profiling import chrome_trace, plots, tables
from sardonyx.graph.profiling.measurements import Measurements


@dataclass(frozen=True, repr=False)
class Profile(Measurements):
    """Where the time of a call goes: per segment, per node, and outside of both.

    `total` is the time of the fastest call, in seconds, from `model(x)` until the results are
    computed. `segments` and `rest` are the parts of the fastest of as many calls that wait after
    each segment, made by turns with the former; `remainder` is the difference between the two.
    Nodes are measured in other calls, and scaled to the time of their segment; see `method`.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> profile = model.profile(np.zeros((1, 8, 48), np.float32))
    >>> profile.method, len(profile.segments), profile.by("operator")[0].seconds > 0
    ('shares of steps one by one', 1, True)
    """

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {
            **asdict(self),
            "rest": dict(self.rest),
            "accounted": self.accounted,
            "remainder": self.remainder,
            "method": self.method,
            "tier": self.tier,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Chrome trace, which chrome://tracing and Perfetto show.

        It shows one call: the segments one after the other, and the nodes of each in the order of
        the program. How long they take was measured, when exactly they begin was not. The remainder
        is no part of it, but stands among its facts.
        """
        with open(path, "w", encoding="utf-8") as file:
            json.dump(chrome_trace.trace_of(self), file)

    def plot(self, most: int = 20) -> Any:
        """Draw the slowest nodes with matplotlib, and return the axes."""
        return plots.axes_of(self, most)

    def __str__(self) -> str:
        return tables.text_of(self)

    def __repr__(self) -> str:
        return tables.line_of(self)

    def _repr_html_(self) -> str:
        return plots.page_of(self)
