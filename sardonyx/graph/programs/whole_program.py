"""A program for one kind of call as one pure function: of weights, constants, inputs and a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput, UnsupportedModel
from sardonyx.graph.ir import Source
from sardonyx.graph.programs.finishing import rewritten
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import Frame, Step, without_dead_steps
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value, static
from sardonyx.graph.values.params import WeightStore

Array: TypeAlias = np.ndarray[Any, Any]

_KEY = Spec((2,), np.dtype(np.uint32))
_WAY_OUT = (
    "but here the whole program is compiled ahead, for any data: give that input its value instead "
    "of a shape where this is for one value alone, or call the model as `sardonyx.load` gives it"
)


@dataclass(frozen=True, eq=False)
class Pure:
    """The steps of a whole program, and in which registers its arguments and results are."""

    backend: Backend
    steps: Sequence[Step]
    inputs: Sequence[int]
    outputs: Sequence[Static | Device]
    weights: Mapping[int, str]
    constants: Mapping[int, Array]
    key: int
    draws: bool
    # The weights whose values decided what the program does.
    read: frozenset[str]
    # What became of each value of the graph, and what is in each register.
    names: Mapping[str, Named]
    specs: Mapping[int, Spec]

    def __call__(
        self, params: Mapping[str, Any], constants: Sequence[Any], inputs: Sequence[Any], key: Any
    ) -> list[Any]:
        """The outputs; to be traced, inside of the backend's scope."""
        frame = self.frame(params, constants, inputs, key)
        for step in self.steps:
            step.run(self.backend, frame)
        return self.results(frame)

    def frame(
        self, params: Mapping[str, Any], constants: Sequence[Any], inputs: Sequence[Any], key: Any
    ) -> Frame:
        """The registers, before the first step."""
        frame: Frame = {register: params[name] for register, name in self.weights.items()}
        frame.update(zip(self.constants, constants, strict=True))
        frame.update(zip(self.inputs, inputs, strict=True))
        frame[self.key] = key
        return frame

    def results(self, frame: Frame) -> list[Any]:
        """The outputs, out of the registers after the last step."""
        return [
            frame[value.register]
            if isinstance(value, Device)
            else self.backend.asarray(value.value)
            for value in self.outputs
        ]


def pure(
    source: Source,
    backend: Backend,
    params: WeightStore,
    given: Sequence[Spec | Array],
    *,
    tracer: Callable[..., Tracer] = Tracer,
    strict: bool = True,
) -> Pure:
    """Trace a model for inputs like these; of an array the value is taken for known."""
    recorder = WholeRecorder(backend, params)
    values = [static(each) if isinstance(each, np.ndarray) else each for each in given]
    with backend.scope():
        tape = Tape(recorder, Inferred(backend))
        traced = tracer(source, tape, strict=strict).trace(values, _KEY)
    outputs = [
        _plain(value, info.name)
        for value, info in zip(traced.outputs, source.graph.outputs, strict=True)
    ]
    return recorder.pure(outputs, traced.names)


def _plain(value: Value, name: str) -> Static | Device:
    if isinstance(value, (Static, Device)) and value.dtype != object:
        return value
    raise UnsupportedModel(
        f"The output '{name}' is no tensor of numbers, and such a program returns nothing else: "
        "call the model as `sardonyx.load` gives it."
    )


class WholeRecorder:
    """Collects the steps of a program, which must not depend on the data of a call."""

    is_inline = False

    def __init__(self, backend: Backend, params: WeightStore) -> None:
        self.backend = backend
        self.weights = params.now()
        self.registers = Registers()
        self._steps: list[Step] = []

    def place(self, key: Any, value: Array) -> Array:
        """The constant itself: it stays on the host, since nothing runs."""
        return value

    def allow_host(self) -> None:
        """Refuse steps on the host."""
        raise InvalidInput(
            "it makes strings, or a result whose shape depends on data, both on the host, "
            f"{_WAY_OUT}"
        )

    def close(self, segment: TracedSegment) -> None:
        """Append the segment's steps; their weights are arguments, whose values nobody knows."""
        self._steps += rewritten(segment, self, knows_weights=False)

    def read(self, registers: Sequence[int], close: Callable[[], None]) -> Sequence[Array]:
        """Refuse to read: no value of a call is known."""
        raise InvalidInput(f"a value decides a shape or a branch, {_WAY_OUT}")

    def pure(self, outputs: Sequence[Static | Device], names: Mapping[str, Named]) -> Pure:
        """The program, without the steps on which no output depends."""
        results = [value.register for value in outputs if isinstance(value, Device)]
        steps = without_dead_steps(self._steps, results)
        used = {register for step in steps for register in step.reads}.union(results)
        registers = self.registers
        return Pure(
            self.backend,
            steps,
            inputs=sorted(registers.inputs),
            outputs=outputs,
            weights={r: name for r, name in registers.weights.items() if r in used},
            constants={r: value for r, value in registers.constants.items() if r in used},
            key=registers.key,
            draws=registers.key in used,
            read=frozenset(self.weights.store.read_while_tracing),
            names=names,
            specs=registers.specs,
        )
