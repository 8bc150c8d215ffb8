"""A program for sizes that are symbols, from the same program for several numbers.

Each step is traced to a jaxpr for each of the sizes. Where these differ in numbers alone, a number
that differs becomes an expression of the symbols, and the step is run once more with it, on arrays
whose shapes are symbols. An expression must come to the right value at every one of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax

from sardonyx.errors import SardonyxError, UnsupportedModel
from sardonyx.exporting.jaxpr_merge import Evaluation
from sardonyx.exporting.size_formulas import Formulas, NoFormula
from sardonyx.exporting.tracing import Traces
from sardonyx.graph.programs.whole_program import Array, Pure
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.graph.values.kinds import Device, Static


@dataclass(eq=False)
class General:
    """The program of all traces, as a function whose arrays may have symbols for sizes."""

    traces: Traces
    formulas: Formulas
    # For each program its registers, by those of the first.
    _twins: list[dict[int, int]] = field(default_factory=list)

    def __call__(
        self, params: Mapping[str, Any], constants: Sequence[Any], inputs: Sequence[Any], key: Any
    ) -> list[Any]:
        programs = self.traces.programs
        self._require_one_form()
        self._twins = [_twins_of_arguments(programs[0], program) for program in programs]
        self._evaluation = Evaluation(self.formulas)
        frame = programs[0].frame(params, constants, inputs, key)
        for steps in zip(*(program.steps for program in programs), strict=True):
            try:
                results = self._step(steps, frame)
            except SardonyxError:
                raise
            except Exception as error:
                raise self._refused(steps[0], error) from error
            frame.update(zip(steps[0].results, results, strict=True))
        outputs = zip(*(program.outputs for program in programs), strict=True)
        return [self._output(values, frame) for values in outputs]

    def _step(self, steps: Sequence[Step], frame: Mapping[int, Any]) -> Sequence[Any]:
        if len({len(step.operands) for step in steps}) > 1:
            raise NoFormula("it reads other values for other sizes")
        arrays = [
            self._operand(operands, frame)
            for operands in zip(*(step.operands for step in steps), strict=True)
        ]
        jaxprs = list(map(_jaxpr, steps, self.traces.programs))
        results = self._evaluation.run(jaxprs, arrays)
        for twins, step in zip(self._twins, steps, strict=True):
            twins.update(zip(steps[0].results, step.results, strict=True))
        return results

    def _operand(self, operands: Sequence[Operand], frame: Mapping[int, Any]) -> Any:
        pairs = zip(operands, self.traces.programs, strict=True)
        values = [_constant(operand, program) for operand, program in pairs]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            place = frame.get(_register(operands[0]))
            return self._evaluation.array(known, place)
        self._require_twins(operands)
        return frame[_register(operands[0])]

    def _output(self, values: Sequence[Static | Device], frame: Mapping[int, Any]) -> Any:
        known = [value.value for value in values if isinstance(value, Static)]
        try:
            if len(known) == len(values):
                return self._evaluation.array(known)
            registers = [v.register if isinstance(v, Device) else -1 for v in values]
            self._require_twins(registers)
        except NoFormula as reason:
            raise UnsupportedModel(f"An output is known for each size, but {reason}.") from None
        return frame[registers[0]]

    def _require_twins(self, operands: Sequence[Operand]) -> None:
        for twins, operand in zip(self._twins, operands, strict=True):
            if twins.get(_register(operands[0])) != operand:
                raise NoFormula("it reads other values for other sizes")

    def _require_one_form(self) -> None:
        first, *others = (program.steps for program in self.traces.programs)
        for steps in others:
            for one, other in zip(first, steps, strict=False):
                if one.node is not other.node or one.title != other.title:
                    raise self._refused(one, NoFormula("what runs there depends on the sizes"))
            if len(first) != len(steps):
                longer = max(first, steps, key=len)
                extra = longer[min(len(first), len(steps))]
                raise self._refused(extra, NoFormula("it runs for some sizes alone"))

    def _refused(self, step: Step, error: Exception) -> UnsupportedModel:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        names = ", ".join(self.traces.signature.symbols)
        return UnsupportedModel(
            f"{step.node.label} ({step.title}) cannot be exported for every {names}: {reason}. "
            "Give numbers in place of these names in the signature."
        )


def _jaxpr(step: Step, program: Pure) -> Any:
    """What a step computes, for the shapes of one of the programs."""
    stand_ins = [jax.ShapeDtypeStruct(*_spec(operand, program)) for operand in step.operands]
    return jax.make_jaxpr(partial(_called, step, program))(*stand_ins)


def _called(step: Step, program: Pure, *arrays: Any) -> Sequence[Any]:
    return step.call(program.backend, arrays)


def _spec(operand: Operand, program: Pure) -> tuple[tuple[int, ...], Any]:
    if isinstance(operand, Embedded):
        return operand.value.shape, operand.value.dtype
    spec = program.specs[operand]
    return spec.shape, spec.dtype


def _constant(operand: Operand, program: Pure) -> Array | None:
    if isinstance(operand, Embedded):
        return operand.value
    return program.constants.get(operand)


def _register(operand: Operand) -> int:
    return operand if isinstance(operand, int) else -1


def _twins_of_arguments(first: Pure, other: Pure) -> dict[int, int]:
    registers = {name: register for register, name in other.weights.items()}
    twins = {register: registers.get(name, -1) for register, name in first.weights.items()}
    twins.update(zip(first.inputs, other.inputs, strict=True))
    twins[first.key] = other.key
    return twins
