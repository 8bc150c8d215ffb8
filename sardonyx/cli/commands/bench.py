"""`sardonyx bench`: load, first call and repeated calls, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from sardonyx.cli.agreement import Agreement, agreement_table, agreements
from sardonyx.cli.command import command as as_command
from sardonyx.cli.inputs.feeds import described, feeds_of
from sardonyx.cli.inputs.options import InputOptions, input_options
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    RUNTIME,
    Amount,
    backends_option,
    device_option,
    json_option,
    model_argument,
    precision_option,
    tolerance_option,
)
from sardonyx.cli.runners import (
    Place,
    Runner,
    declared,
    library_of,
    opened,
    places,
    runtime_is_installed,
)
from sardonyx.cli.tables import grid, put, screen
from sardonyx.cli.thread_count import limited_threads
from sardonyx.cli.timings import PERCENTILES, Timing, measure_in_turns, timed
from sardonyx.display.units import duration
from sardonyx.graph.model.model import Model
from sardonyx.printable import printable
from sardonyx.progress import working

SECONDS = 3.0
ON_DEVICE = "arrays on the device"


@dataclass(frozen=True)
class Start:
    """The seconds until a model answers."""

    title: str
    # Of starting the library: its import, and its devices.
    library: float
    load: float
    first_call: float
    # Of the call that waits for the compiler; None if the first call did.
    compile: float | None


@as_command("bench")
@model_argument
@input_options(draws=True)
@backends_option(
    "What to measure: jax, cupy, numpy or onnxruntime; repeat it for several (default: the best "
    "installed, and onnxruntime if it is installed)."
)
@device_option
@precision_option()
@click.option(
    "--seconds",
    type=Amount(),
    default=SECONDS,
    metavar="NUMBER",
    help=f"How long to repeat calls, in all (default: {SECONDS:g}).",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="How many processors the libraries may use (default: all).",
)
@tolerance_option
@json_option
def command(
    model: str,
    inputs: InputOptions,
    backends: Sequence[str],
    device: str | None,
    precision: str,
    seconds: float,
    threads: int | None,
    tolerance: float | None,
    as_json: bool,
) -> int:
    """Measure a model's load, first call and repeated calls.

    Inputs that no file has are drawn. The outputs are compared first: the status is 1 if they
    differ by more than the tolerance. Then all are called in turns, since a machine may be slower
    at times. A call takes NumPy arrays and returns them; "arrays on the device" leaves out these
    transfers.
    """
    chosen = list(backends)
    wants_runtime = not chosen and runtime_is_installed()
    with limited_threads(threads):
        wanted = places(chosen, device, precision)
        wanted += places([RUNTIME], None, precision) if wants_runtime else []
        starts, runners, feeds = _started(model, wanted, inputs, threads)
        with working("comparing outputs"):
            results = [(each.title, each.run(feeds)) for each in runners]
        differences = agreements(results[0], results[1:], tolerance)
        timings = [each for runner in runners for each in _calls(runner, feeds)]
        with working("measuring"):
            measure_in_turns(timings, seconds)
    if as_json:
        put_json(
            {
                "model": model,
                "inputs": described(feeds),
                "starts": [vars(start) for start in starts],
                "calls": [timing.as_dict() for timing in timings],
                "comparisons": [each.as_dict() for each in differences],
                "agrees": not any(each.difference.parts for each in differences),
            }
        )
    else:
        _put(model, feeds, starts, timings, differences)
    return int(any(each.difference.parts for each in differences))


def _started(
    path: str, wanted: Sequence[Place], inputs: InputOptions, threads: int | None
) -> tuple[list[Start], list[Runner], dict[str, Any]]:
    """Load the model at each place and call it once; return the times, and what was loaded."""
    starts, runners = [], []
    feeds: dict[str, Any] | None = None
    for place in wanted:
        library = timed(partial(library_of, place))[1]
        runner, load = timed(partial(opened, path, replace(place, threads=threads)))
        if feeds is None:
            has_model = runner.title != RUNTIME
            feeds = feeds_of(runner.model if has_model else declared(path), inputs).inputs
        with working(f"first call on {runner.title}"):
            first = timed(partial(runner.run, feeds))[1]
        starts.append(Start(runner.title, library, load, first, _compiled(runner, feeds)))
        runners.append(runner)
    return starts, runners, feeds or {}


def _compiled(runner: Runner, feeds: Mapping[str, Any]) -> float | None:
    """Return the seconds of compiling after a first call that did not wait for it."""
    model = runner.model
    if not isinstance(model, Model) or not model.stats().interpreted:
        return None
    return timed(lambda: model.compile(dict(feeds)))[1]


def _calls(runner: Runner, feeds: Mapping[str, Any]) -> list[Timing]:
    """Return the calls to measure: with NumPy arrays, and with arrays on the device."""
    calls = [Timing(runner.title, lambda: runner.run(feeds))]
    on_device = _on_device(runner, feeds)
    if on_device is not None:
        calls.append(Timing(f"{runner.title}, {ON_DEVICE}", on_device))
    return calls


def _on_device(runner: Runner, feeds: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return a call whose arrays stay on the device; None where there are no transfers.

    Strings and sequences are on the host in any case.
    """
    if runner.title in (RUNTIME, "numpy"):
        return None
    if not feeds or not all(hasattr(v, "dtype") and v.dtype != object for v in feeds.values()):
        return None
    model, backend = runner.model, runner.model._backend
    with backend.scope():
        placed = {name: backend.put(array) for name, array in feeds.items()}

    def call() -> None:
        outputs = model(**placed)
        arrays = outputs if isinstance(outputs, tuple) else (outputs,)
        backend.wait([array for array in arrays if backend.owns(array)])

    return call


def _put(
    model: str,
    feeds: Mapping[str, Any],
    starts: Sequence[Start],
    timings: Sequence[Timing],
    differences: Sequence[Agreement],
) -> None:
    console = screen()
    console.print(printable(model), style="bold")
    console.print(f"{printable(described(feeds)) or 'without inputs'}\n")
    rows = [
        (
            each.title,
            duration(each.library),
            duration(each.load),
            duration(each.first_call),
            "" if each.compile is None else duration(each.compile),
        )
        for each in starts
    ]
    header = ("", "library", "load", "first call", "compiling")
    put(console, grid([header, *rows], "cyan", *["number"] * 4))
    if differences:
        console.print("\nThe outputs", style="bold")
        put(console, agreement_table(differences))
    console.print("\nRepeated calls, in turns", style="bold")
    names = [f"p{p}" for p in PERCENTILES]
    cells = []
    for timing in timings:
        figures = timing.as_dict()
        times = [duration(figures[name]) for name in ("min", *names)]
        cells.append((timing.title, *times, f"{len(timing.seconds):,}"))
    put(console, grid([("", "min", *names, "calls"), *cells], "cyan", *["number"] * 5))
