"""Run a program on arrays with symbolic sizes, from traces of it for several numbers.

Each step is traced to one jaxpr per choice of sizes. If these jaxprs differ only in numbers, each
such number becomes an expression of the symbols, and the step runs once with these expressions.
An expression must have the right value for every choice of sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from sardonyx.backends.jax.lockstep import Counterparts, columns
from sardonyx.backends.padding.axes import Different
from sardonyx.errors import SardonyxError, UnsupportedModel
from sardonyx.exporting.jaxpr_merge import Merger
from sardonyx.exporting.size_formulas import Formulas, NoFormula
from sardonyx.exporting.tracing import Traces
from sardonyx.graph.programs.whole_program import Array, Pure
from sardonyx.graph.tracing.steps import Embedded, Operand, Step, scopes_of
from sardonyx.graph.values.kinds import Device, Static
from sardonyx.printable import first_line


@dataclass(eq=False)
class SymbolicProgram:
    """The program of all traces, as a function of arrays that may have symbolic sizes."""

    traces: Traces
    formulas: Formulas
    # The arrays in the registers of the programs, and the arguments for the first one's constants.
    _arrays: Counterparts[Any] = field(init=False)
    _constants: Mapping[int, Any] = field(init=False)

    def __call__(
        self, params: Mapping[str, Any], constants: Sequence[Any], inputs: Sequence[Any], key: Any
    ) -> list[Any]:
        programs = self.traces.programs
        self._require_one_form()
        self._constants = dict(zip(programs[0].constants, constants, strict=True))
        self._arrays = Counterparts(len(programs))
        self._bind_weights(params)
        self._arrays.bind_all((program.inputs for program in programs), inputs)
        self._arrays.bind([program.key for program in programs], key)
        merger = Merger(self.formulas)
        scopes = scopes_of(programs[0].steps)
        all_steps = columns(program.steps for program in programs)
        for scope, steps in zip(scopes, all_steps, strict=True):
            try:
                with jax.named_scope(scope):
                    self._run(steps, merger)
            except SardonyxError:
                raise
            except Exception as error:
                raise self._refusal(steps[0], error) from error
        outputs = columns(program.outputs for program in programs)
        return [self._output(values, merger) for values in outputs]

    def _bind_weights(self, params: Mapping[str, Any]) -> None:
        by_name = [{n: r for r, n in each.weights.items()} for each in self.traces.programs]
        for name in by_name[0]:
            if all(name in registers for registers in by_name):
                self._arrays.bind([registers[name] for registers in by_name], params[name])

    def _run(self, steps: Sequence[Step], merger: Merger) -> None:
        operands = columns(step.operands for step in steps)
        arrays = [self._operand(column, merger) for column in operands]
        results = merger.run(list(map(_jaxpr, steps, self.traces.programs)), arrays)
        self._arrays.bind_all((step.results for step in steps), results)

    def _operand(self, operands: Sequence[Operand], merger: Merger) -> Any:
        values = list(map(_constant, operands, self.traces.programs))
        if all(value is not None for value in values):
            first = operands[0]
            shared = None if isinstance(first, Embedded) else self._constants[first]
            return merger.constant(values, shared)
        return self._arrays.read(operands)

    def _output(self, values: Sequence[Static | Device], merger: Merger) -> Any:
        try:
            constants = [value.value for value in values if isinstance(value, Static)]
            if len(constants) == len(values):
                return merger.constant(constants)
            return self._arrays.read([getattr(value, "register", None) for value in values])
        except (Different, NoFormula) as reason:
            raise UnsupportedModel(
                f"An output cannot be exported for every {self._symbols}: {reason}. "
                "Give numbers in place of these names in the signature."
            ) from None

    def _require_one_form(self) -> None:
        first, *others = (program.steps for program in self.traces.programs)
        for steps in others:
            for one, other in zip(first, steps, strict=False):
                if one.node is not other.node or one.title != other.title:
                    raise self._refusal(one, Different("the sizes decide which operator runs"))
            if len(first) != len(steps):
                longer = max(first, steps, key=len)
                extra = longer[min(len(first), len(steps))]
                raise self._refusal(extra, Different("it runs for some sizes only"))

    def _refusal(self, step: Step, error: Exception) -> UnsupportedModel:
        reason = first_line(error)
        return UnsupportedModel(
            f"{step.node.label} ({step.title}) cannot be exported for every {self._symbols}: "
            f"{reason}. Give numbers in place of these names in the signature."
        )

    @property
    def _symbols(self) -> str:
        return ", ".join(self.traces.signature.symbols)


def _jaxpr(step: Step, program: Pure) -> Any:
    """Return the jaxpr of a step for the shapes of one of the programs."""
    values = [o.value if isinstance(o, Embedded) else program.specs[o] for o in step.operands]
    stand_ins = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    return jax.make_jaxpr(lambda *arrays: step.call(program.backend, arrays))(*stand_ins)


def _constant(operand: Operand, program: Pure) -> Array | None:
    if isinstance(operand, Embedded):
        return operand.value
    return program.constants.get(operand)
