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
from sardonyx.graph.programs.ahead_tape import AheadTape
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.program import Named
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.rewriting import rewrite
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import Frame, Step, without_dead_steps
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value, static
from sardonyx.graph.values.params import Params

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
    params: Params,
    given: Sequence[Spec | Array],
    *,
    tracer: Callable[..., Tracer] = Tracer,
    strict: bool = True,
) -> Pure:
    """Trace a model for inputs like these; of an array the value is taken for known."""
    tape = PureTape(backend, params)
    with backend.scope():
        title = source.graph.name or "graph"
        program = tracer(source, tape, strict=strict).trace(given, _KEY, title)
    outputs = [
        _plain(value, info.name)
        for value, info in zip(tape.outputs or (), source.graph.outputs, strict=True)
    ]
    return tape.pure(outputs, program.names)


def _plain(value: Value, name: str) -> Static | Device:
    if isinstance(value, (Static, Device)) and value.dtype != object:
        return value
    raise UnsupportedModel(
        f"The output '{name}' is no tensor of numbers, and such a program returns nothing else: "
        "call the model as `sardonyx.load` gives it."
    )


class PureTape(AheadTape):
    """Keeps the steps of a program, which must not depend on the values of what is passed."""

    on_host = (
        f"it makes strings, or a result whose shape depends on data, both on the host, {_WAY_OUT}"
    )

    def __init__(self, backend: Backend, params: Params) -> None:
        compiler = Compiler(backend)
        super().__init__(compiler, params.now(), Inferred(backend))
        self._pieces: list[Step] = []

    def input(self, array: Any) -> Device | Static:
        return static(array) if isinstance(array, np.ndarray) else super().input(array)

    def _learn(self, device: Device) -> None:
        raise InvalidInput(f"a value decides a shape or a branch, {_WAY_OUT}")

    def _new_stage(self, results: Sequence[int], outputs: tuple[Value, ...] | None) -> Stage:
        steps = without_dead_steps(self._steps, results)
        # No weight is known here: their values are passed with each call.
        self._pieces += rewrite(
            steps, results, self._sources, (), self.backend, specs=self._specs,
            fresh=self.fresh_register, is_finite=self._is_finite,
        )  # fmt: skip
        return Stage(outputs=outputs)

    def pure(self, outputs: Sequence[Static | Device], names: Mapping[str, Named]) -> Pure:
        """What was written, without what no output depends on."""
        results = [value.register for value in outputs if isinstance(value, Device)]
        steps = without_dead_steps(self._pieces, results)
        used = {register for step in steps for register in step.reads}.union(results)
        return Pure(
            self.backend,
            steps,
            inputs=sorted(self._inputs),
            outputs=outputs,
            weights={r: name for r, name in self._weights.items() if r in used},
            constants={r: value for r, value in self._sources.items() if r in used},
            key=self._key_register,
            draws=self._key_register in used,
            read=frozenset(self.weights.params.read_while_tracing),
            names=names,
            specs=self._specs,
        )
