"""Runs calls of a recorded signature, without looking at the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Protocol, TypeAlias

from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Bound, Stage, read_key
from sardonyx.graph.tracing.steps import Frame, Segment
from sardonyx.graph.values.kinds import leaves
from sardonyx.graph.values.params import Weights
from sardonyx.stopping import stop_if_asked

NewKey: TypeAlias = Callable[[], Any]


class QuickCall(Protocol):
    """Runs calls of one signature without the stages of its recording."""

    def run(
        self, inputs: Sequence[Any], weights: Weights, compiler: Compiler
    ) -> Sequence[Any] | None:
        """Return the outputs; None if the stages have to run from now on."""

    def output_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs."""


@dataclass(eq=False, slots=True)
class Recording:
    """Everything that was recorded for calls of one signature: a tree of stages."""

    compiler: Compiler
    inline: bool
    # Whether callers pass NumPy's arrays.
    from_numpy: bool = False
    # Number of arrays that they pass.
    inputs: int = 0
    tree: Stage = field(default_factory=Stage)
    # Runs calls as long as it can, in place of the stages; and what makes these at first use.
    sized: QuickCall | None = None
    fill: Callable[[Recording], object] | None = None
    # Called when the first call has been traced, up to what runs first.
    before_run: Callable[[], None] | None = None
    # Whether constants of several elements may be written into the steps.
    embeds_arrays: bool = True
    # Set if the tree is a single stage on the device, as most are.
    shortcut: Shortcut | None = None
    # Whether NumPy computed all that the last call needed.
    may_be_on_numpy: bool = False
    # Held while a call is recorded; calls of the same signature wait for it, and then replay.
    lock: RLock = field(default_factory=RLock)
    # Another one, since whoever holds that lock may wait for those who ask for the stages.
    _filling: RLock = field(default_factory=RLock)

    @property
    def root(self) -> Stage:
        """The stage that the tree begins with, which has no segment."""
        if self.fill is not None:
            with self._filling:
                if self.fill is not None:
                    self.fill(self)
                    self.fill = None
        return self.tree

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        """Return the outputs for these arrays, or None if no call has taken this path yet."""
        sized = self.sized
        if sized is not None:
            outputs = sized.run(inputs, weights, self.compiler)
            if outputs is not None:
                return outputs
            self.sized = None
        tree, shortcut = self.root, self.shortcut
        if shortcut is None:
            return self._follow_tree(inputs, weights, new_key)
        if tree.draws:
            inputs = [*inputs, new_key()]
        passed = [inputs[i] for i in shortcut.positions]
        version, function, arrays, _ = shortcut.stage.bound
        if version != weights.version:
            function, arrays = shortcut.stage.bind(shortcut.segment, passed, self.compiler, weights)
            self._note_numpy(shortcut)
        results = function(*passed, *arrays)
        return results if shortcut.is_plain else shortcut.outputs(inputs, results, weights)

    def run_on_numpy(self, inputs: Sequence[Any], weights: Weights) -> Sequence[Any] | None:
        """Return the outputs if NumPy computes all of them, without the scope of the backend."""
        shortcut = self.shortcut
        if shortcut is None:
            is_on_numpy = self.may_be_on_numpy and not self.tree.draws
            return self._follow_on_numpy(inputs, weights) if is_on_numpy else None
        if shortcut.on_numpy is None:
            return None
        bound = shortcut.on_numpy
        # Somebody may have asked for a compiled program since.
        is_bound = bound.version == weights.version and shortcut.stage.bound is bound
        return bound.function(*inputs) if is_bound else None

    def _follow_on_numpy(self, inputs: Sequence[Any], weights: Weights) -> Sequence[Any] | None:
        frame: Frame = dict(enumerate(inputs))
        version = weights.version
        stage = self.root.next(())
        while stage is not None:
            stop_if_asked()
            segment, bound = stage.segment, stage.bound
            if segment is not None:
                if bound.version != version or not bound.needs_no_scope:
                    # The stages before run again, on arrays that none of them changes.
                    self.may_be_on_numpy = bound.needs_no_scope
                    return None
                results = bound.function(*map(frame.__getitem__, segment.inputs), *bound.arrays)
                if len(results) == 1:  # As of most.
                    frame[segment.results[0]] = results[0]
                else:
                    frame.update(zip(segment.results, results, strict=True))
            if stage.outputs is not None:
                return stage.arrays_of_outputs(frame, weights)
            measures = stage.measures
            if stage.reads:
                stage = stage.next(self._key(stage, frame))
            elif len(measures) == 1:  # NumPy's arrays have tuples for shapes.
                stage = stage.next((frame[measures[0]].shape,))
            else:
                stage = stage.next(tuple([frame[register].shape for register in measures]))
        return None

    def _follow_tree(
        self, inputs: Sequence[Any], weights: Weights, new_key: NewKey
    ) -> Sequence[Any] | None:
        root, key = self.root, len(inputs)
        frame: Frame = dict(enumerate(inputs))
        stage = root.next(())
        is_on_numpy = not self.inline
        while stage is not None:
            stop_if_asked()
            if root.draws and key not in frame:
                frame[key] = new_key()
            stage.run(frame, self.compiler, weights, inline=self.inline)
            is_on_numpy &= stage.segment is None or stage.needs_no_scope
            if stage.outputs is not None:
                self.may_be_on_numpy = is_on_numpy
                return stage.arrays_of_outputs(frame, weights)
            has_key = stage.reads or stage.measures
            stage = stage.next(self._key(stage, frame) if has_key else ())
        return None

    def _key(self, stage: Stage, frame: Frame) -> tuple[Any, ...]:
        shapes = [tuple(frame[register].shape) for register in stage.measures]
        if not stage.reads:
            return tuple(shapes)
        backend = self.compiler.backend
        arrays = (frame[register] for register in stage.reads)
        values = [backend.fetch(a) if backend.owns(a) else a for a in arrays]
        return read_key(values, shapes)

    def can_be_on_numpy(self) -> bool:
        """Whether NumPy computes such calls, as far as they were recorded."""
        if self.sized is not None:
            return False
        stages = self.root.following
        while stages:
            if not stages[0].can_be_on_numpy:
                return False
            stages = stages[0].following
        return bool(self.root.following)

    def output_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the arrays that calls returned, as far as tracing knew them."""
        sized = self.sized
        if sized is not None:
            return sized.output_shapes()
        stage, stages = self.root, self.root.following
        while stages:
            stage, stages = stages[0], stages[0].following
        return [tuple(leaf.shape) for value in stage.outputs or () for leaf in leaves(value)]

    def settle(self) -> None:
        """Take the shortcut from now on if the tree is a single stage on the device."""
        stages = self.tree.following
        if self.inline or len(stages) != 1 or stages[0].outputs is None:
            return
        segment = stages[0].segment
        if segment is not None and not segment.host:
            shortcut = Shortcut(stages[0], segment)
            # The stage is bound already if this is a trace of calls before, or of the first one.
            self._note_numpy(shortcut)
            self.shortcut = shortcut

    def _note_numpy(self, shortcut: Shortcut) -> None:
        if not self.tree.draws:
            shortcut.note_numpy(self.inputs)


class Shortcut:
    """Calls the function of a program's only segment, without following the tree."""

    def __init__(self, stage: Stage, segment: Segment) -> None:
        self.stage = stage
        self.segment = segment
        # The inputs that the function takes, before the arrays of weights and constants.
        self.positions = segment.inputs
        # Whether the outputs are the function's results, in the same order.
        self.is_plain = stage.registers == segment.results
        # What the stage is bound to, if NumPy computes it, as a function of all inputs.
        self.on_numpy: Bound | None = None

    def note_numpy(self, inputs: int) -> None:
        """Let calls run the function as it is, if it is one of NumPy and of all inputs in order."""
        bound = self.stage.bound  # Read once, as another thread may ask for a compiled program.
        if bound.needs_no_scope and self.is_plain and self.positions == tuple(range(inputs)):
            self.on_numpy = bound

    def outputs(
        self, inputs: Sequence[Any], results: Sequence[Any], weights: Weights
    ) -> Sequence[Any]:
        """Return the outputs; some of them are inputs, weights, constants or nested."""
        frame: Frame = dict(enumerate(inputs))
        frame.update(zip(self.segment.results, results, strict=True))
        return self.stage.arrays_of_outputs(frame, weights)
