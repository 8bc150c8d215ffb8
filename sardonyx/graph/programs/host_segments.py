"""Segments on the host, as functions of arrays of the backend or of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay, Spec
from sardonyx.backends.host_steps import library_of_host
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.program import written_out
from sardonyx.graph.loading.custom_ops import Own
from sardonyx.graph.programs.written_segment import WrittenSegment
from sardonyx.graph.tracing.host_results import apart, uploaded
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.graph.tracing.subgraphs import BodyCall

# What longer segments would save is little beside their time.
MOST_MICROSECONDS = 500.0


def executable_on_host(
    segment: Segment, backend: Backend, inputs: Sequence[Spec], arrays: Sequence[Any]
) -> Executable:
    """Return the function that runs a segment's steps on NumPy, for arrays like these."""
    plain = Executable(replaying_on_host(segment, backend))
    if not backend.reads_host_memory or any(map(_is_of_the_user, segment.steps)):
        return plain
    fixed = arrays[len(segment.inputs) :]
    specs = [*inputs, *(HOST.spec(array) for array in fixed)]
    steps = library_of_host(backend)
    written = written_out(segment.replay, specs, len(inputs), (), MOST_MICROSECONDS, steps=steps)
    if written is None:
        return plain
    return WrittenSegment(written, len(inputs), HOST, lambda: plain).executable


def _is_of_the_user(step: Step) -> bool:
    """Whether it runs a function of a user, which may count its calls or draw numbers."""
    call = step.call.call if isinstance(step.call, BodyCall) else step.call
    inner = (step for block in step.blocks for step in block.steps)
    return isinstance(getattr(call, "function", None), Own) or any(map(_is_of_the_user, inner))


def replaying_on_host(segment: Segment, backend: Backend) -> Replay:
    """Return the function that runs a segment's steps on NumPy."""
    run = _run_of(segment, library_of_host(backend))
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


def _run_of(segment: Segment, xp: Backend) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of the segment's arguments; most segments on the host have one step."""
    if len(segment.steps) != 1:
        return lambda arrays: segment.replay(xp, *arrays)
    (step,) = segment.steps
    places = [step.results.index(register) for register in segment.results]

    def run(arrays: Sequence[Any]) -> list[Any]:
        results = step.results_of(xp, dict(zip(segment.arguments, arrays, strict=True)))
        return [results[place] for place in places]

    return run
