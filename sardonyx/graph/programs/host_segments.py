"""Segments on the host, as functions of arrays of the backend or of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay
from sardonyx.backends.numpy import HOST
from sardonyx.graph.tracing.host_results import apart, uploaded
from sardonyx.graph.tracing.steps import Segment


def replaying_on_host(segment: Segment, backend: Backend) -> Replay:
    """Return the function that runs a segment's steps on NumPy."""
    run = _run_of(segment)
    stays = backend.reads_host_memory

    def replay(*arguments: Any) -> list[Any]:
        arrays = [
            a if type(a) is np.ndarray or not backend.owns(a) else backend.fetch(a)
            for a in arguments
        ]
        with HOST.scope():
            results = run(arrays)
        results = apart(results, arrays)
        return results if stays else uploaded(backend, results)

    return replay


def _run_of(segment: Segment) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of the segment's arguments; most segments on the host have one step."""
    if len(segment.steps) != 1:
        return lambda arrays: segment.replay(HOST, *arrays)
    (step,) = segment.steps
    places = [step.results.index(register) for register in segment.results]

    def run(arrays: Sequence[Any]) -> list[Any]:
        results = step.results_of(HOST, dict(zip(segment.arguments, arrays, strict=True)))
        return [results[place] for place in places]

    return run
