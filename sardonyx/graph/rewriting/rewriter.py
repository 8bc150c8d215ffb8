"""A walk over the steps of a segment, and what rewrites ask it about the steps around them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.ir import Node
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.graph.tracing.recorder import Recorder
from sardonyx.graph.tracing.steps import Embedded, Operand, Step, without_dead_steps
from sardonyx.graph.values.kinds import is_finite, is_zero
from sardonyx.ops.definition import Definition, Op
from sardonyx.ops.elementwise import Add, Mul
from sardonyx.ops.layout import Flatten, Reshape, Squeeze, Unsqueeze

# What a rewrite returns in place of a step: steps of which the last has its results; or the
# register that the step would only repeat. None leaves the step alone.
Replacement: TypeAlias = "Sequence[Step] | int | None"
Rewrite: TypeAlias = "Callable[[Passage, Step], Replacement]"
# The rewrites to try on steps that call a function.
Table: TypeAlias = Mapping[Any, Sequence[Rewrite]]
RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)

# An op as it is today, or one of its older functions, or a function that only rewrites use.
Called: TypeAlias = Op[Any] | Callable[..., Any]


class Passage:
    """One walk through the steps of a segment, from the first to the last."""

    def __init__(
        self,
        steps: Sequence[Step],
        results: Sequence[int],
        recorder: Recorder,
        *,
        knows_weights: bool,
        single_rows: bool = False,
    ) -> None:
        self.backend = recorder.backend
        # Whether kernels multiply single rows, too.
        self.single_rows = single_rows
        self._steps = steps
        self._results = frozenset(results)
        self._registers = recorder.registers
        self._weights = recorder.weights
        # What follows from weights and constants alone is computed once, not at each call.
        read = {register for step in steps for register in step.reads}
        self._fixed = read & self._registers.constants.keys()
        if knows_weights:
            self._fixed |= read & self._registers.weights.keys()
        self._producers = {register: step for step in steps for register in step.results}
        self._captured = {r for step in steps if step.blocks for r in step.captured}
        self._reads = Counter(register for step in steps for register in step.reads)
        self._reads.update(self._results)
        # For registers that would only repeat another one: that other one.
        self._same: dict[int, int] = {}

    def rewritten(self, rewrites: Table) -> list[Step]:
        """The steps, after all rewrites of the functions that they call."""
        steps: list[Step] = []
        for step in self._steps:
            call = step.call
            if self._same or (isinstance(call, OpCall) and call.function in rewrites):
                steps += self._settled(step, rewrites)
            else:  # As most steps are.
                self._enter(step)
                steps.append(step)
        return without_dead_steps(steps, list(self._results))

    def _settled(self, step: Step, rewrites: Table) -> list[Step]:
        """The steps in place of this one, when no rewrite changes the last of them any more."""
        if self._same:
            step = self._renumbered(step)
        before: list[Step] = []
        while True:
            self._enter(step)
            replacement = self._replacement(step, rewrites)
            if replacement is None:
                return [*before, step]
            if isinstance(replacement, int):
                self._reads[replacement] += self._reads[step.results[0]]
                self._forget(step)
                self._same[step.results[0]] = replacement
                return before
            *ahead, last = replacement
            for each in replacement:
                for register in each.reads:
                    self._reads[register] += 1
            nodes = _nodes_of(self._forget(step))
            for each in ahead:
                self._enter(each)
            before += ahead
            step = last.fusing(nodes) if len(nodes) > 1 else last

    def _renumbered(self, step: Step) -> Step:
        if self._same.keys().isdisjoint(step.reads):
            return step
        operands = [self._same.get(o, o) if isinstance(o, int) else o for o in step.operands]
        return step.calling(step.call, tuple(operands), step.renamed)

    def _replacement(self, step: Step, rewrites: Table) -> Replacement:
        if not isinstance(step.call, OpCall):
            return None
        for rewrite in rewrites.get(step.call.function, ()):
            replacement = rewrite(self, step)
            if isinstance(replacement, int) and self._is_read_by_number(step):
                continue
            if replacement is not None:
                return replacement
        return None

    def _is_read_by_number(self, step: Step) -> bool:
        """Whether the segment's results or a block name its register, which must stay then."""
        return not self._results.isdisjoint(step.results) or step.results[0] in self._captured

    def _enter(self, step: Step) -> None:
        for register in step.results:
            self._producers[register] = step
        if not step.blocks and self._fixed.issuperset(step.reads):
            self._fixed.update(step.results)

    def _forget(self, step: Step) -> list[Step]:
        """Remove the step's reads, and the steps that nothing reads without them; return these."""
        forgotten, reads = [step], self._reads
        for register in step.reads:
            reads[register] -= 1
            producer = None if reads[register] else self._producers.get(register)
            if producer is not None and not any(reads[r] for r in producer.results):
                forgotten[:0] = self._forget(producer)
        return forgotten

    # -- what rewrites ask ------------------------------------------------------------------------

    @property
    def steps(self) -> Sequence[Step]:
        """The steps before the walk."""
        return self._steps

    def spec(self, operand: Operand) -> Spec:
        """Shape and dtype of an operand."""
        if isinstance(operand, Embedded):
            return Spec(operand.value.shape, operand.value.dtype)
        return self._registers.specs[operand]

    def producer(self, operand: Operand | None, *ops: Called) -> Step | None:
        """The step that computes the operand, if it calls one of these ops; without ops, any."""
        step = self._producers.get(operand) if isinstance(operand, int) else None
        return step if step is not None and (not ops or calls(step, *ops)) else None

    def sole_producer(self, operand: Operand, *ops: Called) -> Step | None:
        """The same, if nothing else reads the operand."""
        return self.producer(operand, *ops) if self.is_read_once(operand) else None

    def is_read_once(self, operand: Operand) -> bool:
        """Whether the operand is a register with one reader."""
        return isinstance(operand, int) and self._reads[operand] == 1

    def is_closed(self, chain: Iterable[Step], root: Step) -> bool:
        """Whether only these steps and `root` read the results of the steps."""
        steps = set(chain)
        reads = Counter(register for step in {*steps, root} for register in step.reads)
        results = (register for step in steps for register in step.results)
        return all(reads[register] == self._reads[register] for register in results)

    def is_fixed(self, operand: Operand) -> bool:
        """Whether the operand follows from weights and constants alone."""
        return isinstance(operand, Embedded) or operand in self._fixed

    def is_finite(self, operand: Operand) -> bool:
        """Whether an array that follows from weights has neither infinities nor NaN.

        Operations on finite weights are assumed to have finite results.
        """
        value = self.constant(operand)
        if value is not None:
            return is_finite(value)
        assert isinstance(operand, int)
        if self.spec(operand).dtype.kind in "biu":
            return True
        producer = self._producers.get(operand)
        if producer is None:
            name = self._registers.weights.get(operand)
            return name is not None and self._weights.is_finite(name)
        reads_finite = all(map(self.is_finite, producer.operands))
        return bool(producer.reads) and not producer.blocks and reads_finite

    def is_zero(self, operand: Operand) -> bool:
        """Whether an array is known to be 0 everywhere, as long as its initializer stays."""
        value = self.constant(operand)
        if value is not None:
            return is_zero(value)
        assert isinstance(operand, int)
        name = self._registers.weights.get(operand) if self.is_fixed(operand) else None
        return name is not None and self._weights.is_zero(name)

    def constant(self, operand: Operand) -> np.ndarray[Any, Any] | None:
        """The operand's value, if it is a constant."""
        if isinstance(operand, Embedded):
            return operand.value
        return self._registers.constants.get(operand)

    @property
    def size_of_weights(self) -> int:
        """The bytes of all weights of the model."""
        return self._weights.store.size

    def scalar(self, operand: Operand) -> float | None:
        """The operand's value, if it is a constant of one real element."""
        value = self.constant(operand)
        if value is None or value.size != 1 or value.dtype.kind not in "fiuV":
            return None
        return float(value.reshape(()))

    # -- new steps --------------------------------------------------------------------------------

    def ahead_of(
        self,
        step: Step,
        spec: Spec,
        called: Called,
        operands: Sequence[Operand],
        arguments: Sequence[Any] | None = None,
        *,
        title: str | None = None,
        **attributes: Any,
    ) -> Step:
        """A step before another one, with a new register for its result."""
        register = self._registers.new_for_rewrite(spec)
        at = Step(
            *(step.node, step.call, step.operands, (register,), (spec,), step.blocks),
            *(step.renamed, (), step.path, step.chained),
        )
        return instead_of(at, called, operands, arguments, title=title, **attributes)


def _nodes_of(steps: Sequence[Step]) -> tuple[Node, ...]:
    """Return the nodes that the steps computed, once each."""
    return tuple(dict.fromkeys(node for step in steps for node in step.fused or (step.node,)))


def instead_of(
    step: Step,
    called: Called,
    operands: Sequence[Operand],
    arguments: Sequence[Any] | None = None,
    *,
    title: str | None = None,
    **attributes: Any,
) -> Step:
    """A step with the same results that calls another function; an op is its own title.

    `arguments` are the function's own, unless these are simply the operands: a hole for each.
    """
    call = OpCall(
        function_of(called),
        (HOLE,) * len(operands) if arguments is None else tuple(arguments),
        attributes,
        tuple([spec.dtype for spec in step.specs]),
        outputs=len(step.specs),
        is_view=isinstance(called, Op) and called.at(sys.maxsize).is_view,
    )
    renamed = title or (called.name if isinstance(called, Op) else None)
    return step.calling(call, tuple(operands), renamed)


def calls(step: Step, *ops: Called) -> bool:
    """Whether the step calls one of these."""
    called = step.call.function if isinstance(step.call, OpCall) else None
    return called is not None and called in _functions(ops)


@cache
def _functions(ops: tuple[Called, ...]) -> frozenset[Callable[..., Any]]:
    return frozenset(map(function_of, ops))


def function_of(op: Called) -> Callable[..., Any]:
    """An op's function for the newest opset; a function is itself."""
    return op.at(sys.maxsize).function if isinstance(op, Op) else op


def call_of(step: Step) -> OpCall:
    """The call of a step that is known to be an operator's, without subgraphs."""
    assert isinstance(step.call, OpCall)
    return step.call


def attributes_of(step: Step) -> dict[str, Any]:
    """The keyword arguments of such a call."""
    return dict(call_of(step).attributes)


def parameters_of(step: Step, op: Called) -> dict[str, Any]:
    """The op's parameters by name, with their operands, values or defaults in this step."""
    definition = op.at(sys.maxsize) if isinstance(op, Op) else _definition(op)
    operands = iter(step.operands)
    # A node may leave out its last inputs.
    values: dict[str, Any] = dict.fromkeys(parameter.name for parameter in definition.inputs)
    values |= {name: p.default for name, p in definition.attributes.items()}
    for parameter, argument in zip(definition.inputs, call_of(step).arguments, strict=False):
        values[parameter.name] = next(operands) if argument is HOLE else argument
    return values | attributes_of(step)


_definition = cache(Definition.of)


def orders(step: Step) -> Iterator[tuple[Operand, ...]]:
    """The operands of a step, and for Add and Mul also in the other order."""
    yield step.operands
    if calls(step, Add, Mul):
        yield step.operands[::-1]
