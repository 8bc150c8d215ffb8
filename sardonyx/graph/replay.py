"""Running what was recorded, without the graph: what a repeated call does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.graph.params import Params
from sardonyx.graph.program import Frame, Stage, output_of
from sardonyx.graph.tape import read_key
from sardonyx.graph.values import Device, Value, Weight
from sardonyx.ops.definition import Map, MapRows


@dataclass(eq=False, slots=True)
class Recording:
    """All that was recorded for calls of one signature: a tree of stages."""

    backend: Backend
    params: Params
    inline: bool
    # Whether a call must bring a key, after its inputs, from which to draw at random.
    draws: bool = False
    root: Stage = field(default_factory=Stage)
    # Set where the tree is a single stage on the device, which is nearly always.
    direct: Direct | None = None

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs for these arrays, or None where the calls so far did not come this way."""
        direct = self.direct
        if direct is not None:
            return direct.run(inputs)
        frame: Frame = dict(enumerate(inputs))
        stage = self.root.following.get(())
        while stage is not None:
            for register, name in stage.weights.items():
                frame[register] = self.params[name]
            frame.update(stage.constants)
            if stage.segment is not None:
                stage.segment.run(self.backend, frame, inline=self.inline)
            if stage.outputs is not None:
                return tuple(output_of(value, frame, self.backend) for value in stage.outputs)
            stage = stage.following.get(self._key(stage, frame))
        return None

    def _key(self, stage: Stage, frame: Frame) -> tuple[Any, ...]:
        read = (frame[register] for register in stage.reads)
        values = [self.backend.fetch(a) if self.backend.owns(a) else a for a in read]
        return read_key(values, [tuple(frame[register].shape) for register in stage.measures])

    def settle(self) -> None:
        """Prepare the short way, once a recording is done, where the tree allows it."""
        stages = list(self.root.following.values())
        if self.inline or len(stages) != 1 or stages[0].outputs is None:
            return
        (stage,) = stages
        if stage.segment is None or not stage.segment.host:
            self.direct = Direct.of(stage, self.backend, self.params)


@dataclass(eq=False, slots=True)
class Direct:
    """A program of one segment: its function, what to pass it, and where the outputs are."""

    stage: Stage
    backend: Backend
    params: Params
    function: Callable[..., Sequence[Any]] | None
    positions: tuple[int, ...]
    bound: list[Any]
    outputs: tuple[Any, ...]
    version: int

    @classmethod
    def of(cls, stage: Stage, backend: Backend, params: Params) -> Direct:
        segment = stage.segment
        arguments = segment.arguments if segment else ()
        kept = {**stage.weights, **stage.constants}
        results = {r: i for i, r in enumerate(segment.results if segment else ())}
        return cls(
            stage,
            backend,
            params,
            segment.function(backend) if segment else None,
            tuple(register for register in arguments if register not in kept),
            _bound(stage, params, arguments),
            tuple(_plan(value, results) for value in stage.outputs or ()),
            params.version,
        )

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if self.version != self.params.version:
            self._rebind()
        results: Sequence[Any] = ()
        if self.function is not None:
            results = self.function(*[inputs[i] for i in self.positions], *self.bound)
        return tuple([_pick(plan, inputs, self, results) for plan in self.outputs])

    def _rebind(self) -> None:
        segment = self.stage.segment
        self.bound = _bound(self.stage, self.params, segment.arguments if segment else ())
        self.version = self.params.version


def _bound(stage: Stage, params: Params, arguments: Sequence[int]) -> list[Any]:
    bound = []
    for register in arguments:
        if register in stage.weights:
            bound.append(params[stage.weights[register]])
        elif register in stage.constants:
            bound.append(stage.constants[register])
    return bound


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


def _pick(plan: Any, inputs: Sequence[Any], direct: Direct, results: Sequence[Any]) -> Any:
    if type(plan) is not tuple:
        if isinstance(plan, list):
            return [_pick(one, inputs, direct, results) for one in plan]
        if isinstance(plan, (Map, MapRows)):
            return replace(plan, values=_pick(plan.values, inputs, direct, results))
        return plan
    kind, place = plan
    if kind == "result":
        return results[place]
    return inputs[place] if kind == "input" else direct.backend.shield(direct.params[place])
