"""The stages of a recording: each holds a segment, and the stages that can follow it.

The next call may read other values on the host, or get results of other shapes, and so take another
path. Therefore stages form a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.executable import Costs, Executable, Replay, Spec
from sardonyx.graph.calls.nested_values import map_arrays
from sardonyx.graph.programs.compiler import Compiler, Unit
from sardonyx.graph.programs.host_segments import executable_on_host
from sardonyx.graph.programs.provisional import Decide, Provisional
from sardonyx.graph.programs.weight_preparation import Binding
from sardonyx.graph.tracing.steps import Frame, Segment, Step
from sardonyx.graph.values.kinds import Device, Static, Value, Weight, digest
from sardonyx.graph.values.params import Weights

# Maximum number of stages that follow one stage; beyond it, the least recently used one goes.
MOST_FOLLOWING = 64


def _unbound(*arrays: Any) -> Sequence[Any]:
    raise AssertionError("no call has bound the stage to weights yet")


class Bound(NamedTuple):
    """A stage's function, and its arrays of weights and constants, for a version of the weights."""

    version: int
    function: Replay
    arrays: Sequence[Any]
    # Whether NumPy computes it, without the backend's scope.
    needs_no_scope: bool = False


_NO_ARRAYS = Binding()
_UNBOUND = Bound(-1, _unbound, ())


@dataclass(eq=False, slots=True)
class Stage:
    """A segment of a recording, its arrays of weights and constants, and what follows it."""

    segment: Segment | None = None
    binding: Binding = _NO_ARRAYS
    # Positions of the segment's arguments that the caller donated.
    donated: tuple[int, ...] = ()
    # Of the segment's inputs and results.
    inputs: tuple[Spec, ...] = ()
    results: tuple[Spec, ...] = ()
    # Whether calls pass NumPy's arrays to the model.
    from_numpy: bool = False
    # Gets the seconds of each run step by step, and returns whether the next starts the compiler.
    decide: Decide | None = None
    # Whether the first run goes step by step where the next ones run fused steps: a stage that was
    # derived for new sizes may run only once.
    begins_stepwise: bool = field(default=False, init=False)
    # The registers whose values, or shapes, decide which stage follows.
    reads: tuple[int, ...] = ()
    measures: tuple[int, ...] = ()
    # The model's outputs, in the last stage of a path: values whose arrays are in registers.
    outputs: tuple[Value, ...] | None = None
    executable: Executable | Provisional | None = None
    # Threads replace it as a whole.
    bound: Bound = field(default=_UNBOUND, init=False)
    # Whether rewrites changed steps that already ran while they were traced.
    is_rewritten: bool = False
    # Only in a root: whether a stage of the tree takes a random key, after the inputs.
    draws: bool = False
    # The outputs' registers, if each output is an array that a call computed or passed.
    registers: tuple[int, ...] | None = field(default=None, init=False)
    _following: dict[tuple[Any, ...], Stage] = field(default_factory=dict)
    # Number of calls that went on from this stage, and that of the previous one when a call last
    # came here.
    _passed: int = 0
    _used: int = 0

    def __post_init__(self) -> None:
        outputs = self.outputs
        if not outputs:
            self.registers = ()
            return
        arrays = [v for v in outputs if isinstance(v, Device) and not isinstance(v, Weight)]
        if len(arrays) == len(outputs):
            self.registers = tuple([device.register for device in arrays])

    def arrays_of_outputs(self, frame: Frame, weights: Weights) -> list[Any]:
        """Return the arrays of the model's outputs, in the last stage of a path."""
        if self.registers is not None:
            return [frame[register] for register in self.registers]
        return outputs_of(self.outputs or (), frame, weights)

    def run(self, frame: Frame, compiler: Compiler, weights: Weights, *, inline: bool) -> None:
        """Run the segment on the registers of the frame, and put its results there."""
        segment = self.segment
        if segment is None:
            return
        inputs = [frame[register] for register in segment.inputs]
        version, replay, arrays, _ = self.bound
        if inline:
            replay = partial(self.binding.replaying(segment), compiler.backend.for_ops)
            arrays = compiler.backend.ready(self.binding.arrays(weights, host=segment.host))
        elif version != weights.version:
            replay, arrays = self.bind(segment, inputs, compiler, weights)
        results = replay(*inputs, *arrays)
        frame.update(zip(segment.results, results, strict=True))

    def bind(
        self, segment: Segment, inputs: Sequence[Any], compiler: Compiler, weights: Weights
    ) -> tuple[Replay, Sequence[Any]]:
        """Return the segment's function and its arrays; bind it to them once it is compiled."""
        self.begin(inputs, compiler, weights)
        arrays = self.binding.arrays(weights, host=segment.host)
        if self.begins_stepwise and not segment.host:
            self.begins_stepwise = False
            return compiler.stepped(self._unit(segment, [*inputs, *arrays])), arrays
        executable = self.executable_for(segment, compiler, [*inputs, *arrays])
        function = executable.run
        if isinstance(executable, Executable):
            if executable.on_numpy is not None:
                function, arrays = executable.on_numpy(arrays), []
            elif not segment.host:
                arrays = compiler.backend.ready(arrays)
            needs_no_scope = executable.on_numpy is not None and not executable.needs_scope
            self.bound = Bound(weights.version, function, arrays, needs_no_scope)
        return function, arrays

    def executable_for(
        self, segment: Segment, compiler: Compiler, arrays: Sequence[Any]
    ) -> Executable | Provisional:
        """Return the segment as a function of arrays like these, compiled if the backend can."""
        # Other threads may replace it at any time.
        executable = found = self.executable
        if executable is None and segment.host:
            executable = executable_on_host(segment, compiler.backend, self.inputs, arrays)
        elif executable is None:
            executable = compiler.compile(self._unit(segment, arrays))
        if isinstance(executable, Provisional):
            executable = executable.executable or executable
        if executable is not found:
            self.executable = executable
        return executable

    def _unit(self, segment: Segment, arrays: Sequence[Any]) -> Unit:
        replay, form = self.binding.replaying(segment), self.binding.form(segment)
        return Unit(
            *(segment, replay, form, arrays, self.results, self.donated, self.from_numpy),
            self.decide,
        )

    @property
    def is_compiled(self) -> bool:
        """Whether the segment's function stays the same from now on."""
        return isinstance(self.executable, Executable)

    @property
    def is_on_numpy(self) -> bool:
        """Whether calls run a function of NumPy, without the backend's library."""
        executable = self.executable
        return isinstance(executable, Executable) and executable.on_numpy is not None

    @property
    def needs_no_scope(self) -> bool:
        """The same of a function that needs no scope of the backend, either, once it has run."""
        return self.bound.needs_no_scope

    @property
    def can_be_on_numpy(self) -> bool:
        """The same of a stage that no call has run twice, whose function is made for that."""
        executable = self.executable
        if isinstance(executable, Provisional):
            return executable.is_written_out()
        return self.segment is None or self.is_on_numpy

    @property
    def costs(self) -> Callable[[], Costs] | None:
        """What the compiler reports on the segment, if it is compiled."""
        executable = self.executable
        return executable.costs if isinstance(executable, Executable) else None

    def compile(self, compiler: Compiler, weights: Weights) -> None:
        """Compile the segment and prepare its weights, without a call."""
        executable, segment = self.executable, self.segment
        if isinstance(executable, Executable) and executable.stands_in:
            self.executable, self.bound = None, _UNBOUND
        if segment is not None and not segment.host:
            with compiler.backend.scope():
                self.begin(self.inputs, compiler, weights)
                self.binding.arrays(weights)
                arguments = [*self.inputs, *self.binding.stand_ins(weights)]
                # Not what replaces it by now, which may be written out for want of a program.
                executable = self.executable or self.executable_for(segment, compiler, arguments)
            if isinstance(executable, Provisional):
                self.executable = executable.compiled()

    def begin(self, inputs: Sequence[Any], compiler: Compiler, weights: Weights) -> None:
        """Compile the segment before its first run, while another thread prepares its weights."""
        segment = self.segment
        if self.executable is not None or segment is None or segment.host:
            return
        if not compiler.backend.compiled:
            return
        arguments = [*inputs, *self.binding.stand_ins(weights)]
        # A thread takes as long to start as a small model to run.
        if not self.binding.prepared or compiler.interprets_segment(segment):
            self.executable_for(segment, compiler, arguments)
            return
        with ThreadPoolExecutor(1) as pool:
            preparation = pool.submit(copy_context().run, self.binding.prepare, weights)
            self.executable_for(segment, compiler, arguments)
        preparation.result()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, with those that prepare weights."""
        prepared = [step for group in self.binding.prepared for step in group.steps]
        return (*prepared, *(() if self.segment is None else self.segment.steps))

    # -- what follows -----------------------------------------------------------------------------

    @property
    def following(self) -> list[Stage]:
        return list(self._following.values())

    def next(self, key: tuple[Any, ...]) -> Stage | None:
        """Return the stage that follows for this key, if a call was recorded with it."""
        stage = self._following.get(key)
        if stage is not None and len(self._following) > 1:
            self._passed += 1
            stage._used = self._passed
        return stage

    def lead_to(self, key: tuple[Any, ...], stage: Stage) -> None:
        """Let `stage` follow for this key, in place of the least recently used one if need be."""
        self._passed += 1
        stage._used = self._passed
        self._following[key] = stage
        while len(self._following) > MOST_FOLLOWING:
            others = list(self._following.items())
            self._following.pop(min(others, key=lambda item: item[1]._used)[0], None)


def read_key(
    values: Sequence[np.ndarray[Any, Any]], shapes: Sequence[tuple[int, ...]] = ()
) -> tuple[Any, ...]:
    """Return a key of the values and shapes that decide which stage follows."""
    return (*(digest(value) for value in values), *shapes)


def outputs_of(values: Sequence[Value], frame: Frame, weights: Weights) -> list[Any]:
    """Return the arrays of outputs; static ones stay values, for the caller's library to take."""

    def array_of(leaf: Static | Device) -> Any:
        if isinstance(leaf, Weight):
            return weights.backend.shield(weights[leaf.name])
        return frame[leaf.register] if isinstance(leaf, Device) else leaf

    return [map_arrays(array_of, value) for value in values]
