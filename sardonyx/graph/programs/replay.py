"""Running what was recorded, without the graph: what a repeated call does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, TypeAlias

from sardonyx.backends.executable import Replay
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage, output_of, read_key
from sardonyx.graph.tracing.steps import Frame
from sardonyx.graph.values.kinds import Device, Value, Weight
from sardonyx.graph.values.params import Weights
from sardonyx.ops.definition import Map, MapRows

NewKey: TypeAlias = Callable[[], Any]


@dataclass(eq=False, slots=True)
class Recording:
    """All that was recorded for calls of one signature: a tree of stages."""

    compiler: Compiler
    inline: bool
    root: Stage = field(default_factory=Stage)
    # Set where the tree is a single stage on the device, which is nearly always.
    direct: Direct | None = None
    # Held by who records: others that come with the same signature wait, and replay then.
    lock: RLock = field(default_factory=RLock)

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        """The outputs for these arrays, or None where the calls so far did not come this way."""
        direct = self.direct
        if direct is not None:
            return direct.run([*inputs, new_key()] if self.root.draws else inputs, weights)
        backend, root, key = self.compiler.backend, self.root, len(inputs)
        frame: Frame = dict(enumerate(inputs))
        stage = root.next(())
        while stage is not None:
            if root.draws and key not in frame:
                frame[key] = new_key()
            stage.run(frame, self.compiler, weights, inline=self.inline)
            if stage.outputs is not None:
                return [output_of(value, frame, weights, backend) for value in stage.outputs]
            stage = stage.next(self._key(stage, frame))
        return None

    def _key(self, stage: Stage, frame: Frame) -> tuple[Any, ...]:
        backend = self.compiler.backend
        read = (frame[register] for register in stage.reads)
        values = [backend.fetch(a) if backend.owns(a) else a for a in read]
        return read_key(values, [tuple(frame[register].shape) for register in stage.measures])

    def settle(self) -> None:
        """Prepare the short way, once a recording is done, where the tree allows it."""
        stages = self.root.following
        if self.inline or len(stages) != 1 or stages[0].outputs is None:
            return
        (stage,) = stages
        if stage.segment is None or not stage.segment.host:
            self.direct = Direct.of(stage, self.compiler)


@dataclass(eq=False, slots=True)
class Direct:
    """A program of one segment: its function, what to pass it, and where the outputs are."""

    stage: Stage
    compiler: Compiler
    positions: tuple[int, ...]
    outputs: tuple[Any, ...]
    # Whether the outputs are what the function returns, one by one.
    is_plain: bool
    function: Replay | None = None
    # The version of the weights, and the arrays that are passed for it; replaced as a whole.
    bound: tuple[int, Sequence[Any]] = (-1, ())

    @classmethod
    def of(cls, stage: Stage, compiler: Compiler) -> Direct:
        segment = stage.segment
        results = {r: i for i, r in enumerate(segment.results if segment else ())}
        outputs = tuple(_plan(value, results) for value in stage.outputs or ())
        is_plain = outputs == tuple(("result", i) for i in range(len(results)))
        inputs = segment.inputs if segment else ()
        return cls(stage, compiler, inputs, outputs, is_plain)

    def run(self, inputs: Sequence[Any], weights: Weights) -> Sequence[Any]:
        version, fixed = self.bound
        if version != weights.version:
            fixed = self._rebind(inputs, weights)
        results: Sequence[Any] = ()
        if self.function is not None:
            results = self.function(*[inputs[i] for i in self.positions], *fixed)
        elif self.stage.segment is not None:
            arrays = [*[inputs[i] for i in self.positions], *fixed]
            self.function = self.stage.function(self.compiler, arrays)
            results = self.function(*arrays)
        if self.is_plain:
            return results
        return [_pick(plan, inputs, weights, results) for plan in self.outputs]

    def _rebind(self, inputs: Sequence[Any], weights: Weights) -> Sequence[Any]:
        self.stage.begin([inputs[i] for i in self.positions], self.compiler, weights)
        fixed = self.stage.binding.arrays(weights)
        self.bound = weights.version, fixed
        return fixed


def _plan(value: Value, results: dict[int, int]) -> Any:
    """Where to find an output: ("result", i), ("input", i), ("weight", name), or the value."""
    if isinstance(value, list):
        return [_plan(one, results) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=_plan(value.values, results))
    if isinstance(value, Weight):
        return "weight", value.name
    if isinstance(value, Device):
        made = results.get(value.register)
        return ("input", value.register) if made is None else ("result", made)
    return value


def _pick(plan: Any, inputs: Sequence[Any], weights: Weights, results: Sequence[Any]) -> Any:
    if type(plan) is not tuple:
        if isinstance(plan, list):
            return [_pick(one, inputs, weights, results) for one in plan]
        if isinstance(plan, (Map, MapRows)):
            return replace(plan, values=_pick(plan.values, inputs, weights, results))
        return plan
    kind, place = plan
    if kind == "result":
        return results[place]
    return inputs[place] if kind == "input" else weights.backend.shield(weights[place])
