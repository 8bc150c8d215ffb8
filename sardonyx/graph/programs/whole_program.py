"""A whole program for one signature, as a pure function of weights, constants, inputs and a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput, UnsupportedModel
from sardonyx.graph.ir import Source
from sardonyx.graph.rewriting.phases import rewritten
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import Frame, Step, run_steps, without_dead_steps
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value, static
from sardonyx.graph.values.params import WeightStore

Array: TypeAlias = np.ndarray[Any, Any]

_KEY = Spec((2,), np.dtype(np.uint32))
_WAY_OUT = (
    "but the whole program is compiled before any call: pass that input as a value instead of a "
    "shape if the program is for this value only, or call the model that `sardonyx.load` returns"
)


@dataclass(frozen=True, eq=False)
class Pure:
    """The steps of a whole program, with the registers of its arguments and results."""

    backend: Backend
    steps: Sequence[Step]
    inputs: Sequence[int]
    outputs: Sequence[Static | Device]
    weights: Mapping[int, str]
    constants: Mapping[int, Array]
    key: int
    draws: bool
    # The weights that were read while tracing.
    read: frozenset[str]
    # The kind of each value of the graph; the shape and dtype of each register.
    names: Mapping[str, Named]
    specs: Mapping[int, Spec]

    def __call__(
        self, params: Mapping[str, Any], constants: Sequence[Any], inputs: Sequence[Any], key: Any
    ) -> list[Any]:
        """Return the outputs. The caller traces this inside of the backend's scope."""
        frame: Frame = {register: params[name] for register, name in self.weights.items()}
        frame.update(zip(self.constants, constants, strict=True))
        frame.update(zip(self.inputs, inputs, strict=True))
        frame[self.key] = key
        run_steps(self.steps, self.backend, frame)
        asarray = self.backend.asarray
        return [
            frame[value.register] if isinstance(value, Device) else asarray(value.value)
            for value in self.outputs
        ]


def pure(
    source: Source,
    backend: Backend,
    params: WeightStore,
    inputs: Sequence[Spec | Array],
    *,
    tracer: Callable[..., Tracer] = Tracer,
    strict: bool = True,
) -> Pure:
    """Trace a model for inputs like these. The program holds for the values of arrays."""
    recorder = WholeRecorder(backend, params, rewrites=source.rewrites)
    values = [static(each) if isinstance(each, np.ndarray) else each for each in inputs]
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
        f"The output '{name}' is not a tensor of numbers, which a program compiled before any call "
        "cannot return: call the model that `sardonyx.load` returns."
    )


class WholeRecorder:
    """Collects the steps of a program that does not depend on the data of a call."""

    is_inline = False
    only_infers = True
    # They are arguments.
    knows_weights = False

    def __init__(self, backend: Backend, params: WeightStore, *, rewrites: bool) -> None:
        self.backend = backend
        self.rewrites = rewrites
        self.weights = params.now()
        self.registers = Registers()
        self._steps: list[Step] = []

    def place(self, key: Any, value: Array) -> Array:
        """Return the constant itself, since nothing runs."""
        return value

    def note_workaround(self, reason: str) -> None:
        """Do nothing, as nothing runs."""

    def allow_host(self) -> None:
        """Refuse steps on the host."""
        raise InvalidInput(
            "it runs on the host, as it returns strings, a shape that depends on data, or a type "
            "that the device lacks, "
            f"{_WAY_OUT}"
        )

    def close(self, segment: TracedSegment) -> None:
        """Append the segment's steps."""
        self._steps += rewritten(segment, self, knows_weights=self.knows_weights)

    def read(self, registers: Sequence[int], close: Callable[[], None]) -> Sequence[Array]:
        """Refuse to read values, as no call has passed any."""
        raise InvalidInput(f"a value decides a shape or a branch, {_WAY_OUT}")

    def pure(self, outputs: Sequence[Static | Device], names: Mapping[str, Named]) -> Pure:
        """Return the program without dead steps."""
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
