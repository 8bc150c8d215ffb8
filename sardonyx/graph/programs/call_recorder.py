"""Records a call while it is traced: each segment becomes a stage, and runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.finishing import plain_stage, prepared_stage
from sardonyx.graph.programs.parallel_compiling import compile_stages
from sardonyx.graph.programs.stages import Stage, outputs_of, read_key
from sardonyx.graph.rewriting.phases import rewritten
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import content_text
from sardonyx.graph.tracing.tape import UNKNOWN_UNDER_TRANSFORMATION
from sardonyx.graph.values.kinds import Device, Value, leaves
from sardonyx.graph.values.params import Constants, Weights
from sardonyx.logs import Log

_LOG = Log("tracing")


@dataclass(eq=False, slots=True)
class CallRecorder:
    """Records one call, and adds its stages to the tree under `root`.

    Without `execute` only the segments run whose results decide how the program goes on.
    """

    root: Stage
    compiler: Compiler
    weights: Weights
    constants: Constants
    is_inline: bool = field(kw_only=True)
    execute: bool = field(kw_only=True)
    rewrites: bool = field(kw_only=True)
    donated: Collection[int] = field(default=(), kw_only=True)
    # Whether the caller passes NumPy's arrays.
    from_numpy: bool = field(default=False, kw_only=True)
    # The name of the input that each of the call's arrays belongs to.
    inputs: Sequence[str] = field(default=(), kw_only=True)
    # Called before the first segment runs.
    before_run: Callable[[], None] | None = field(default=None, kw_only=True)
    registers: Registers = field(default_factory=Registers)
    only_infers: bool = field(default=False, init=False)
    # The stages of this call, and the key under which the next one follows the last of them.
    path: list[Stage] = field(default_factory=list)
    _key: tuple[Any, ...] = ()
    # Pieces of a long program, which are compiled together before the first of them runs.
    _waiting: list[Stage] = field(default_factory=list)
    _draws: bool = False

    @property
    def backend(self) -> Backend:
        return self.compiler.backend

    @property
    def knows_weights(self) -> bool:
        # Under a caller's transformation weights can be traced.
        return not self.is_inline

    @property
    def _stage(self) -> Stage:
        return self.path[-1] if self.path else self.root

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """Return the constant on the device."""
        return self.constants.place(key, value)

    def note_workaround(self, reason: str) -> None:
        """Count it."""
        self.compiler.note_workaround(reason)

    def allow_host(self) -> None:
        """Do nothing, as steps can run on the host."""

    def close(self, segment: TracedSegment) -> None:
        """Run the segment, in the stage of an earlier call on this path or in a new one."""
        recorded = self._stage.next(self._key)
        stage = recorded or self._new_stage(segment)
        if stage.segment is not None:
            self._draws |= self.registers.key in stage.segment.inputs
        if recorded is None:
            # Other threads can run the stage at once, and then pass a key if the root draws.
            self.root.draws |= self._draws
            self._stage.lead_to(self._key, stage)
        self.path.append(stage)
        self._key = ()
        self._waiting.append(stage)
        if segment.outputs is not None:
            self._donate(self._waiting, segment.outputs)
        if not segment.is_piece and (segment.outputs is None or self.execute):
            self._run_waiting()
        if segment.measured:
            stage.measures = tuple(device.register for device in segment.measured)
            shapes = [device.shape for device in segment.measured]
            self._key = read_key([], shapes)
            if self._is_new_branch:
                _LOG.info("Tracing goes on for results of new shapes: %s.", partial(str, shapes))

    def _run_waiting(self) -> None:
        stages = [stage for stage in self._waiting if self._runs(stage)]
        self._waiting.clear()
        if len(stages) > 1 and not self.is_inline and not self.compiler.interprets:
            compile_stages(stages, self.compiler, self.weights)
        before_run, self.before_run = self.before_run, None
        if before_run is not None:
            before_run()
        for stage in stages:
            stage.run(self.registers.frame, self.compiler, self.weights, inline=self.is_inline)

    def read(
        self, registers: Sequence[int], close: Callable[[], None]
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Run the segment so far, and return the values."""
        close()
        values = [self._fetched(self.registers.frame[register]) for register in registers]
        self._stage.reads = tuple(registers)
        self._key = read_key(values)
        if self._is_new_branch:
            read = partial(self._read_text, registers, values)
            _LOG.info("Tracing goes on for a new value that the program read: %s.", read)
        return values

    @property
    def _is_new_branch(self) -> bool:
        """Whether earlier calls went on from here, and none in the way that this one does."""
        return bool(self._stage.following) and self._stage.next(self._key) is None

    def _read_text(self, registers: Sequence[int], values: Sequence[np.ndarray[Any, Any]]) -> str:
        segments = (stage.segment for stage in self.path if stage.segment is not None)
        steps = [step for segment in segments for step in segment.steps]
        names = {
            register: name
            for step in steps
            for register, name in zip(step.results, step.node.outputs, strict=False)
        }
        names.update(enumerate(self.inputs))
        return ", ".join(
            f"{names.get(register) or 'a value'} = {content_text(value)}"
            for register, value in zip(registers, values, strict=True)
        )

    def arrays_of(self, outputs: Sequence[Value]) -> list[Any]:
        """Return the arrays of the recorded call's outputs."""
        return outputs_of(outputs, self.registers.frame, self.weights)

    def _fetched(self, value: Any) -> np.ndarray[Any, Any]:
        if self.backend.is_abstract(value):
            raise InvalidInput(
                f"its value decides a shape or a branch, {UNKNOWN_UNDER_TRANSFORMATION}"
            )
        # A copy, because the caller can write to the array after the call.
        return np.array(self.backend.fetch(value) if self.backend.owns(value) else value)

    def _runs(self, stage: Stage) -> bool:
        """Whether a stage has to run, as its steps did not run while they were traced.

        Rewritten steps run too, so that this call returns the same as later ones.
        """
        if stage.segment is None:
            return False
        return stage.is_rewritten or (self.backend.compiled and not stage.segment.host)

    def _new_stage(self, traced: TracedSegment) -> Stage:
        steps = rewritten(traced, self, knows_weights=self.knows_weights)
        # Under a caller's transformation nothing runs ahead of the call.
        is_plain = traced.on_host or self.is_inline
        stage = (plain_stage if is_plain else prepared_stage)(steps, traced, self)
        stage.from_numpy = self.from_numpy
        stage.decide = self.root.decide
        if traced.on_host or not self.backend.compiled:
            stage.is_rewritten = list(map(id, steps)) != list(map(id, traced.steps))
        return stage

    def _donate(self, stages: Sequence[Stage], outputs: Sequence[Value]) -> None:
        """Let the last stages of the path use the buffers of donated arguments.

        The path cannot end or branch between them. A stage gets the arguments that no later one
        reads, and that are not outputs.
        """
        later = {v.register for o in outputs for v in leaves(o) if isinstance(v, Device)}
        for stage in reversed(stages):
            inputs = () if stage.segment is None else stage.segment.inputs
            stage.donated = tuple(
                position
                for position, register in enumerate(inputs)
                if register in self.donated and register not in later
            )
            later.update(inputs)
