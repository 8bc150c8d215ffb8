"""The tree that a recording is: a segment, and how the program goes on after it.

A value that is read on the host may lead elsewhere at the next call, and so may a shape that is
found there.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay, Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.weight_preparation import Binding
from sardonyx.graph.tracing.steps import Frame, Segment, Step
from sardonyx.graph.values.kinds import Device, Value, Weight, digest
from sardonyx.graph.values.params import Weights
from sardonyx.ops.definition import Map, MapRows

# Of the ways on from one stage, those that were not taken for longest are forgotten.
MOST_WAYS_ON = 64


@dataclass(eq=False, slots=True)
class Stage:
    """A segment, what it needs besides the stages before it, and what follows."""

    segment: Segment | None = None
    binding: Binding = field(default_factory=Binding)
    # The places of the segment's arguments that the caller gave up.
    donated: tuple[int, ...] = ()
    # What the segment takes and makes.
    inputs: tuple[Spec, ...] = ()
    results: tuple[Spec, ...] = ()
    # The registers whose values, or shapes, the rest of the program was recorded for.
    reads: tuple[int, ...] = ()
    measures: tuple[int, ...] = ()
    # The model's outputs, in the last stage of a path: values whose arrays are in registers.
    outputs: tuple[Value, ...] | None = None
    executable: Executable | None = None
    # Of steps that run while they are traced: whether rewrites have changed them since.
    is_rewritten: bool = False
    # Of a root: whether a stage of the tree takes a key, after the inputs, to draw at random from.
    draws: bool = False
    _following: dict[tuple[Any, ...], Stage] = field(default_factory=dict)
    # How many calls had passed through the stage before when one last came from there.
    _used: int = 0
    _passed: int = 0

    def run(self, frame: Frame, compiler: Compiler, weights: Weights, *, inline: bool) -> None:
        """Run the segment on the registers of the frame, and put its results there."""
        segment = self.segment
        if segment is None:
            return
        given = [frame[register] for register in segment.inputs]
        if not inline:
            self.begin(given, compiler, weights)
        arrays = [*given, *self.binding.arrays(weights, host=segment.host)]
        if inline:
            results: Sequence[Any] = self.binding.replaying(segment)(compiler.backend, *arrays)
        else:
            results = self.function(compiler, arrays)(*arrays)
        frame.update(zip(segment.results, results, strict=True))

    def function(self, compiler: Compiler, arrays: Sequence[Any]) -> Replay:
        """The segment as a function, compiled where the backend compiles for arrays like these."""
        segment = self.segment
        if self.executable is None and segment is not None:
            if segment.host:
                self.executable = Executable(partial(_replay_on_host, segment, compiler.backend))
            else:
                replay = partial(self.binding.replaying(segment), compiler.backend)
                form = self.binding.form(segment)
                self.executable = compiler.compile(replay, segment, arrays, form, self.donated)
        assert self.executable is not None
        return self.executable.run

    def compile(self, compiler: Compiler, weights: Weights) -> None:
        """Make the function ready, without arrays."""
        if self.segment is not None and not self.segment.host:
            with compiler.backend.scope():
                self.begin(self.inputs, compiler, weights)
                self.binding.arrays(weights)

    def begin(self, given: Sequence[Any], compiler: Compiler, weights: Weights) -> None:
        """Compile, while another thread makes what is made of the weights."""
        if self.executable is not None or self.segment is None or self.segment.host:
            return
        if not compiler.backend.compiled:
            return
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(self.binding.prepare, weights)
            self.function(compiler, [*given, *self.binding.stand_ins(weights)])
        made.result()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of its steps, those included that run ahead of a call."""
        prepared = self.binding.prepared
        own = () if self.segment is None else self.segment.steps
        return own if prepared is None else prepared.steps + own

    # -- what follows -----------------------------------------------------------------------------

    @property
    def following(self) -> list[Stage]:
        return list(self._following.values())

    def next(self, key: tuple[Any, ...]) -> Stage | None:
        """The stage that follows where this was found, if a call has come that way."""
        stage = self._following.get(key)
        if stage is not None:
            self._passed += 1
            stage._used = self._passed
        return stage

    def lead_to(self, key: tuple[Any, ...], stage: Stage) -> None:
        """Let this stage follow; the way that was taken longest ago is forgotten for it."""
        self._passed += 1
        stage._used = self._passed
        self._following[key] = stage
        while len(self._following) > MOST_WAYS_ON:
            ways = list(self._following.items())
            self._following.pop(min(ways, key=lambda way: way[1]._used)[0], None)


def _replay_on_host(segment: Segment, backend: Backend, *arguments: Any) -> list[Any]:
    fetched = (backend.fetch(a) if backend.owns(a) else a for a in arguments)
    with HOST.scope():
        results = segment.replay(HOST, *fetched)
    return [r if r.dtype == object else backend.put(r) for r in results]


def read_key(
    values: Sequence[np.ndarray[Any, Any]], shapes: Sequence[tuple[int, ...]] = ()
) -> tuple[Any, ...]:
    """What tells two calls apart that find different values or shapes at the same cut."""
    return (*(digest(value) for value in values), *shapes)


def output_of(value: Value, frame: Frame, weights: Weights, backend: Backend) -> Any:
    """An output's arrays; a static one stays what it is, for the caller's library to take."""
    if isinstance(value, list):
        return [output_of(one, frame, weights, backend) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=output_of(value.values, frame, weights, backend))
    if isinstance(value, Weight):
        return backend.shield(weights[value.name])
    return frame[value.register] if isinstance(value, Device) else value
