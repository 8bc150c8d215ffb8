"""`sardonyx demo`: load and run one real model, and print its values, accuracy and times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from sardonyx.api import load
from sardonyx.cli.command import command as as_command
from sardonyx.cli.options import backend_option, device_option
from sardonyx.cli.tables import grid, put, screen
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.model import Model
from sardonyx.graph.programs.program import Program
from sardonyx.version import PACKAGE

# Two backends sum in different orders. The encoder's results are of order 1, in float32.
LARGEST_DIFFERENCE = 1e-4
SECONDS_OF_REPEATS = 1.0
NAMES_PER_KIND = 2


@as_command("demo")
@backend_option()
@device_option
def command(backend: str | None, device: str | None) -> int:
    """Run the example model and print a report.

    The example is a transformer encoder that PyTorch exported. The status is 1 if its results
    differ from those of another backend, or of onnxruntime.
    """
    console = screen()
    path, stored = example("encoder.onnx"), np.load(example("encoder.npz"))
    x, expected = stored["0/in/x"], stored["0/out/y"]
    model = load(path, backend=backend, device=device)
    y, first = _timed(model, x)
    rows_of_first = _of_first_call(model, x, first)
    program = model.trace(x)
    other = "numpy" if model.backend != "numpy" else "jax"
    differences = {
        other: _difference(y, load(path, backend=other)(x)),
        "onnxruntime (stored)": _difference(y, expected),
    }
    _print_model(console, model, path)
    console.print(f"\nThe values of the graph, for x: {x.dtype}{list(x.shape)}", style="bold")
    put(console, _kinds(program, model.inputs))
    console.print(_extent(program, path))
    console.print("\nThe largest difference from other backends", style="bold")
    rows = [(name, f"{value:.1e}") for name, value in differences.items()]
    put(console, grid(rows, "none", "number"))
    console.print("\nThe time of one call", style="bold")
    put(console, _times(rows_of_first, _repeated(model, x)))
    return int(max(differences.values()) > LARGEST_DIFFERENCE)


def example(name: str) -> Path:
    """Return a file of the examples: in the installed package, or in `examples/` of a checkout."""
    installed = PACKAGE / "examples" / name
    return installed if installed.exists() else PACKAGE.parent / "examples" / name


def _print_model(console: Console, model: Model, path: Path) -> None:
    placement = next(iter(model.params.values())).device
    device = getattr(placement, "device_kind", placement)
    producer = model.metadata.get("producer", "an unnamed exporter")
    where = f"{model.backend} ({device})"
    console.print(f"{path.name}, exported by {producer}, on {where}", style="bold")
    console.print(f"{model.inputs[0]} -> {model.outputs[0]}")


def _kinds(program: Program, inputs: Sequence[ValueInfo]) -> Table:
    weights = [name for stage in program.stages for name in stage.binding.weights.values()]
    not_computed = {*weights, *(info.name for info in inputs)}
    computed = [n for n, v in program.names.items() if v.kind == "device" and n not in not_computed]
    kinds = {
        "static": ("known while tracing", [f"{n} = {_text(v)}" for n, v in program.static.items()]),
        "alias": ("shares another's buffer", [f"{n} is {of}" for n, of in program.aliases.items()]),
        "constant": ("static, used on the device", list(program.constants)),
        "weight": ("placed on the device once", weights),
        "device": ("computed at each call", computed),
    }
    rows = [
        (kind, str(len(names)), meaning, ", ".join(_abridged(names)))
        for kind, (meaning, names) in kinds.items()
    ]
    return grid(rows, "cyan", "number", "none", "dim")


def _abridged(names: list[str]) -> list[str]:
    return names[:NAMES_PER_KIND] + ["..."] * (len(names) > NAMES_PER_KIND)


def _text(value: np.ndarray[Any, Any]) -> str:
    return str(value.tolist()) if value.size <= 4 else f"{value.dtype}{list(value.shape)}"


def _extent(program: Program, path: Path) -> str:
    nodes = len(onnx.load(path).graph.node)
    steps = sum(len(segment.steps) for segment in program.segments)
    count = len(program.segments)
    return f"{nodes} nodes became {steps} steps in {count} segment{'s' * (count != 1)}."


def _timed(model: Model, x: Any) -> tuple[Any, float]:
    start = perf_counter()
    y = model(x)  # With NumPy inputs the result is complete when the call returns.
    return y, perf_counter() - start


def _repeated(model: Model, x: Any) -> list[float]:
    times: list[float] = []
    while not times or sum(times) < SECONDS_OF_REPEATS:
        times.append(_timed(model, x)[1])
    return times


def _of_first_call(model: Model, x: Any, seconds: float) -> list[tuple[str, str, str]]:
    """The time of the first call, and what was done in it; and that of compiling after it."""
    before = model.stats()
    model.compile({"x": x})
    if not before.interpreted:
        how = "traced, compiled and run" if before.compiles else "traced and run"
        return [("first", _milliseconds(seconds), how)]
    return [
        ("first", _milliseconds(seconds), "traced, and run step by step"),
        ("compiling", _milliseconds(model.stats().compile_seconds), "in the background"),
    ]


def _times(first: Sequence[tuple[str, str, str]], later: Sequence[float]) -> Table:
    rows = [
        *first,
        ("repeated, median", _milliseconds(statistics.median(later)), f"of {len(later)} calls"),
        ("repeated, minimum", _milliseconds(min(later)), ""),
    ]
    return grid(rows, "none", "number", "dim")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.{2 if seconds < 0.01 else 0}f} ms"


def _difference(one: Any, other: Any) -> float:
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))))
