"""A model on a backend, or in onnxruntime, as a function from inputs to outputs by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from sardonyx.api import load
from sardonyx.backends import find
from sardonyx.cli.options import RUNTIME
from sardonyx.comparing.runtime_arrays import reason_of
from sardonyx.comparing.sides import SessionSide
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.exporting.archive import is_archive
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.printable import printable
from sardonyx.progress import working


@dataclass(frozen=True)
class Runner:
    """What computes the outputs of a model."""

    title: str
    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    # The loaded model, or the session of onnxruntime.
    model: Any


@dataclass(frozen=True)
class Declared:
    """The inputs and outputs of a model that is not loaded."""

    inputs: Sequence[ValueInfo]
    optional_inputs: Sequence[ValueInfo]
    outputs: Sequence[ValueInfo]


@dataclass(frozen=True)
class Place:
    """Where and how exactly a model runs."""

    backend: str | None = None
    device: str | None = None
    precision: str = "highest"
    compile: str | None = None
    threads: int | None = None


def opened(path: str, place: Place, *, key: int | None = None) -> Runner:
    """Load a model at a place; with a key its random operators draw the same on all backends."""
    if place.backend == RUNTIME:
        with working(f"loading {os.path.basename(path)} in onnxruntime"):
            return _runtime(path, place)
    with working(f"loading {os.path.basename(path)}"):
        model = loaded(path, place)
    called = model if key is None else model.bind(key=key)

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        names = [info.name for info in model.outputs]
        return dict(zip(names, called.run(None, feeds), strict=True))

    return Runner(model.backend, run, model)


def loaded(path: str, place: Place) -> Any:
    """Return the model, or the exported program, at a place."""
    if is_archive(path):
        if place.precision != "highest":
            raise InvalidInput(
                "An exported program has the precision of its export: leave out --precision."
            )
        return load(path, backend=place.backend, device=place.device)
    return load(
        path,
        backend=place.backend,
        device=place.device,
        precision=place.precision,
        compile=place.compile,
    )


def declared(path: str) -> Any:
    """Return the inputs and outputs of a model that need not run here."""
    if is_archive(path):
        return load(path)
    graph = load_source(*read_model(path)).graph
    return Declared(graph.required_inputs, graph.optional_inputs, graph.outputs)


def places(
    backends: Sequence[str], device: str | None, precision: str, compile_when: str | None = None
) -> list[Place]:
    """Return the place of each backend; without any, the best one.

    Beside others, a backend that lacks the device runs where it runs by default.
    """
    if len(set(backends)) < len(backends):
        raise click.UsageError(f"A backend is named twice: {', '.join(backends)}.")
    chosen = []
    for backend in list[str | None](backends) or [None]:
        on = device
        if backend == RUNTIME or (len(backends) > 1 and not _has(backend, device)):
            on = None
        chosen.append(Place(backend, on, precision, compile_when))
    if device is not None and all(place.device is None for place in chosen):
        raise BackendUnavailable(f"No backend of {', '.join(backends)} has the device {device!r}.")
    return chosen


def _has(backend: str | None, device: str | None) -> bool:
    if device is None:
        return True
    try:
        find(backend, device)
    except BackendUnavailable:
        return False
    return True


def runtime_is_installed() -> bool:
    """Whether onnxruntime is installed."""
    return find_spec(RUNTIME) is not None


def library_of(place: Place) -> Any:
    """Start the library of a place, and return it."""
    if place.backend != RUNTIME:
        return find(place.backend, place.device)
    try:
        return import_module(RUNTIME)
    except ImportError:
        raise BackendUnavailable(
            "onnxruntime is not installed: pip install onnxruntime, or name another backend."
        ) from None


def _runtime(path: str, place: Place) -> Runner:
    runtime = library_of(place)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    if place.threads is not None:
        options.intra_op_num_threads = place.threads
    # Its own message for a missing file is long.
    read_model(path)
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidInput(
            f"onnxruntime cannot open '{path}': {printable(reason_of(error), 300)}. Name another "
            "backend."
        ) from error

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        side = SessionSide(session)
        return side.values(side.names(), feeds)

    return Runner(RUNTIME, run, session)
