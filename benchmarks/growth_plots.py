"""Growth as plots with two logarithmic axes, on which an exponent is a slope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.growth import Point
from benchmarks.plots import COLOURS, save

RUNTIME_COLOURS = {
    "numpy": COLOURS["openvino"],
    "jax": COLOURS["sardonyx"],
    "onnxruntime": COLOURS["onnxruntime"],
}
MARKERS = {
    "load": "o",
    "trace": "s",
    "compile": "^",
    "first call": "v",
    "repeated call": ".",
    "all calls": "x",
}
UNITS = {"inputs": "inputs", "weights": "MB", "loop": "iterations", "signatures": "signatures"}


def draw(points: Sequence[Point], folder: Path) -> list[Path]:
    """Write a plot of times and one of memory; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = list(dict.fromkeys(point.case for point in points))
    figure = Figure(figsize=(11, 3 * -(-len(cases) // 3)), layout="constrained")
    grid = figure.subplots(-(-len(cases) // 3), 3, squeeze=False).flat
    for axes, case in zip(grid, cases, strict=False):
        _draw_times(axes, case, [point for point in points if point.case == case])
    for axes in list(grid)[len(cases) :]:
        axes.set_visible(False)
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        labels |= {label: line for line, label in zip(*axes.get_legend_handles_labels())}  # noqa: B905
    figure.legend(
        labels.values(), labels, loc="outside lower center", ncols=5, fontsize=7, frameon=False
    )
    return [
        save(figure, folder / "benchmarks-growth-time.svg"),
        save(_memory(points), folder / "benchmarks-growth-memory.svg"),
    ]


def _draw_times(axes: Any, case: str, points: Sequence[Point]) -> None:
    for runtime in dict.fromkeys(point.runtime for point in points):
        line = sorted((p for p in points if p.runtime == runtime), key=lambda point: point.size)
        for stage in line[-1].seconds:
            axes.plot(
                [p.size for p in line],
                [max(p.seconds[stage], 1e-6) for p in line],
                color=RUNTIME_COLOURS[runtime],
                marker=MARKERS[stage],
                linewidth=0.8,
                markersize=4,
                label=f"{runtime}, {stage}",
            )
    _label(axes, case, "seconds of CPU time")


def _memory(points: Sequence[Point]) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for case, runtime in dict.fromkeys((point.case, point.runtime) for point in points):
        line = [p for p in points if (p.case, p.runtime) == (case, runtime)]
        line.sort(key=lambda point: point.size)
        axes.plot(
            [p.size for p in line],
            [max(p.megabytes, 1) for p in line],
            color=RUNTIME_COLOURS[runtime],
            marker="os^vx.D"[list(dict.fromkeys(p.case for p in points)).index(case)],
            linewidth=0.8,
            markersize=4,
            label=f"{case}, {runtime}",
        )
    _label(axes, "growth of the peak memory", "MB")
    figure.legend(loc="outside right center", fontsize=7, frameon=False)
    return figure


def _label(axes: Any, title: str, unit: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(UNITS.get(title, "nodes" if title in ("chain", "tree", "layers") else "size"))
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
