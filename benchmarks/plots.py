"""The results as plots, for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.models import NETWORKS
from benchmarks.results import Record, peers_of, plot_of, title_of

COLOURS = {
    "onnxruntime": "#6b8e6b",
    "sardonyx": "#b5452c",
    "sardonyx_keeping": "#7c2c1a",
    "sardonyx_xla": "#d98f7d",
    "sardonyx_plain": "#ecc5bb",
    "hand_written": "#e0a458",
    "openvino": "#4c78a8",
    "torch": "#9a9a9a",
    "torch_compiled": "#5f5f5f",
    "jaxonnxruntime": "#c9b8d8",
    "roofline": "#2e7d5b",
}
# Longer bars are cut, and their ratio is written at the cut.
LONGEST = 6.0


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """One plot of ratios for each measure; the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _drawn(measure, [r for r in records if r.measure == measure], folder)
        for measure in dict.fromkeys(record.measure for record in records)
    ]


def _drawn(measure: str, records: Sequence[Record], folder: Path) -> Path:
    rows = [
        (network, batch)
        for network in NETWORKS
        for batch in sorted({r.batch for r in records if r.network == network})
    ]
    over = records[0].over
    peers = [peer for peer in peers_of(records) if peer != over]
    figure = Figure(figsize=(max(6.0, 1.1 * len(rows) + 1.5), 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(peers), 1)
    found = {(r.network, r.batch, r.peer): r.ratio for r in records}
    for i, peer in enumerate(peers):
        ratios = [found.get((*row, peer)) or 0.0 for row in rows]
        places = [x + (i + 0.5) * width - 0.4 for x in range(len(rows))]
        axes.bar(
            places,
            [min(r, LONGEST) for r in ratios],
            width,
            color=COLOURS[peer],
            label=title_of(peer),
        )
        for place, ratio in zip(places, ratios, strict=True):
            if ratio > LONGEST:
                axes.text(place, LONGEST, f"{ratio:.0f}", ha="center", va="bottom", fontsize=7)
    axes.axhline(1, color="black", linewidth=0.8)
    labels = ["\n".join([*NETWORKS[n].title.split(", "), f"batch {b}"]) for n, b in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=7)
    axes.set_ylabel(f"ratio to {title_of(over)}, lower is better")
    axes.set_title(measure)
    figure.legend(loc="outside lower center", fontsize=7, ncols=len(peers), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, folder / plot_of(measure))


def save(figure: Figure, path: Path) -> Path:
    """Write the figure; without a date and with fixed names, equal results give equal files."""
    with mpl.rc_context({"svg.hashsalt": "sardonyx", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    return path
