"""The steps between two cuts as a rewrite sees them: who makes a register, who else reads it."""

from __future__ import annotations

import sys
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.graph.tracing.steps import Embedded, Operand, Step, without_dead_steps
from sardonyx.graph.values.kinds import is_finite
from sardonyx.ops.definition import Definition, Op

Known: TypeAlias = Mapping[int, np.ndarray[Any, Any]]
# What a rewrite puts in place of a step: steps of which the last has its results; or, where it
# would only hand on what another step made, that register. None if it leaves the step alone.
Replacement: TypeAlias = "Sequence[Step] | int | None"
Rewrite: TypeAlias = "Callable[[Passage, Step], Replacement]"
# The rewrites that are tried on steps that call a function.
Table: TypeAlias = Mapping[Any, Sequence[Rewrite]]
# An op as it is today, or one of its older functions, or a function that only rewrites know.
Called: TypeAlias = Op[Any] | Callable[..., Any]


class Passage:
    """Steps on their way through the rewrites, from the first to the last."""

    def __init__(
        self,
        results: Sequence[int],
        known: Known,
        *,
        weights: Collection[int] = (),
        specs: MutableMapping[int, Spec] | None = None,
        backend: Backend | None = None,
        fresh: Callable[[Spec], int] | None = None,
        is_finite: Callable[[int], bool] | None = None,
    ) -> None:
        self.results = frozenset(results)
        self.backend = backend
        self._known = known
        self._specs: ChainMap[int, Spec] = ChainMap({}, {} if specs is None else specs)
        self._fresh = fresh
        self._is_finite = is_finite
        # What follows from weights and constants alone: it is made once, not at each call.
        self._fixed = {*weights, *known}
        self._makers: dict[int, Step] = {}
        self._reads: Counter[int] = Counter()
        self._captured: set[int] = set()

    def rewritten(self, steps: Sequence[Step], rewrites: Table) -> list[Step]:
        """The steps, after all rewrites of the functions that they call."""
        self._reads = Counter(register for step in steps for register in step.reads)
        self._reads.update(self.results)
        self._captured = {r for step in steps for r in step.captured}
        self._makers = {r: step for step in steps for r in step.results}
        same: dict[int, int] = {}
        made: list[Step] = []
        for step in steps:
            made += self._settled(_renumbered(step, same), rewrites, same)
        return without_dead_steps(made, list(self.results))

    def _settled(self, step: Step, rewrites: Table, same: dict[int, int]) -> list[Step]:
        before: list[Step] = []
        while True:
            self._enter(step)
            found = self._replacement(step, rewrites)
            if found is None:
                return [*before, step]
            if isinstance(found, int):
                self._reads[found] += self._reads[step.results[0]]
                self._forget(step)
                same[step.results[0]] = found
                return before
            *ahead, last = found
            for each in found:
                self._reads.update(each.reads)
            self._forget(step)
            for each in ahead:
                self._enter(each)
            before += ahead
            step = last

    def _replacement(self, step: Step, rewrites: Table) -> Replacement:
        if not isinstance(step.call, OpCall):
            return None
        for rewrite in rewrites.get(step.call.function, ()):
            found = rewrite(self, step)
            if found is not None and not (isinstance(found, int) and self._is_kept(step)):
                return found
        return None

    def _is_kept(self, step: Step) -> bool:
        """Whether its result is read by its number, so that no other can stand for it."""
        return not self.results.isdisjoint(step.results) or step.results[0] in self._captured

    def _enter(self, step: Step) -> None:
        self._makers.update(dict.fromkeys(step.results, step))
        if not step.blocks and self._fixed.issuperset(step.reads):
            self._fixed.update(step.results)

    def _forget(self, step: Step) -> None:
        """The step is gone, and with it all that was made for it alone."""
        for register in step.reads:
            self._reads[register] -= 1
            maker = self._makers.get(register)
            if maker is not None and not any(self._reads[r] for r in maker.results):
                self._forget(maker)

    # -- what rewrites ask ------------------------------------------------------------------------

    @property
    def can_add(self) -> bool:
        """Whether new registers can be had, and it is known what is in the others."""
        return self._fresh is not None and bool(self._specs)

    def fresh(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, Spec]:
        """A new register, for an array of this shape."""
        assert self._fresh is not None
        spec = Spec(tuple(shape), dtype)
        register = self._fresh(spec)
        self._specs[register] = spec
        return register, spec

    def spec(self, operand: Operand) -> Spec | None:
        """Shape and dtype of an operand, where they are known."""
        if isinstance(operand, Embedded):
            return Spec(operand.value.shape, operand.value.dtype)
        maker = self._makers.get(operand)
        if maker is not None:
            return maker.specs[maker.results.index(operand)]
        return self._specs.get(operand)

    def maker(self, operand: Any, *ops: Called) -> Step | None:
        """The step that makes the operand, if it calls one of these ops, or whatever it calls."""
        step = self._makers.get(operand) if isinstance(operand, int) else None
        return step if step is not None and (not ops or calls(step, *ops)) else None

    def inner(self, operand: Any, *ops: Called) -> Step | None:
        """The same, if the operand is read this once and by nobody else."""
        return self.maker(operand, *ops) if self.is_read_once(operand) else None

    def is_read_once(self, operand: Operand) -> bool:
        return isinstance(operand, int) and self._reads[operand] == 1

    def is_closed(self, chain: Iterable[Step], root: Step) -> bool:
        """Whether nobody but these steps and `root` reads what the steps make."""
        steps = set(chain)
        reads = Counter(register for step in {*steps, root} for register in step.reads)
        made = (register for step in steps for register in step.results)
        return all(reads[register] == self._reads[register] for register in made)

    def is_fixed(self, operand: Operand) -> bool:
        """Whether it follows from weights and constants alone."""
        return isinstance(operand, Embedded) or operand in self._fixed

    def is_finite(self, operand: Operand) -> bool:
        """Whether an array is finite: of what is made of weights, whether these are."""
        value = self.constant(operand)
        if value is not None:
            return is_finite(value)
        assert isinstance(operand, int)
        maker, spec = self._makers.get(operand), self.spec(operand)
        if spec is not None and spec.dtype.kind in "biu":
            return True
        if maker is None:
            return self._is_finite is not None and self._is_finite(operand)
        return bool(maker.reads) and not maker.blocks and all(map(self.is_finite, maker.operands))

    def constant(self, operand: Operand) -> np.ndarray[Any, Any] | None:
        """The operand's value, if it is a constant."""
        return operand.value if isinstance(operand, Embedded) else self._known.get(operand)

    def scalar(self, operand: Operand) -> float | None:
        """The operand's value, if it is a constant of one real element."""
        value = self.constant(operand)
        if value is None or value.size != 1 or value.dtype.kind not in "fiuV":
            return None
        return float(value.reshape(()))


def call_of(step: Step) -> OpCall:
    """What the step calls, where it is known to be an operator without subgraphs."""
    assert isinstance(step.call, OpCall)
    return step.call


def calls(step: Step, *ops: Called) -> bool:
    """Whether the step calls one of these."""
    called = step.call.function if isinstance(step.call, OpCall) else None
    return any(called is function_of(op) for op in ops)


def function_of(op: Called) -> Callable[..., Any]:
    """An op's function for the newest opset; a function is itself."""
    return op.at(sys.maxsize).function if isinstance(op, Op) else op


def given(step: Step, op: Called) -> dict[str, Any]:
    """What the op's parameters are bound to in this step: operands, values, defaults."""
    definition = op.at(sys.maxsize) if isinstance(op, Op) else _definition(op)
    operands = iter(step.operands)
    bound = {name: p.default for name, p in definition.attributes.items()}
    if isinstance(step.call, OpCall):
        for parameter, argument in zip(definition.inputs, step.call.arguments, strict=False):
            bound[parameter.name] = next(operands) if argument is HOLE else argument
        bound |= step.call.attributes
    return bound


_definition = cache(Definition.of)


def calling(
    root: Step,
    called: Called,
    operands: Sequence[Operand],
    title: str,
    arguments: Sequence[Any] | None = None,
    **attributes: Any,
) -> Step:
    """A step that makes what `root` makes by another function.

    `arguments` are the function's own, where they are not simply the operands: a hole for each.
    """
    call = OpCall(
        function_of(called),
        tuple(HOLE for _ in operands) if arguments is None else tuple(arguments),
        attributes,
        tuple(spec.dtype for spec in root.specs),
        outputs=len(root.specs),
        is_view=isinstance(called, Op) and called.at(sys.maxsize).is_view,
    )
    return replace(root, call=call, operands=tuple(operands), renamed=title)


def ahead_of(
    root: Step,
    made: tuple[int, Spec],
    called: Called,
    operands: Sequence[Operand],
    title: str,
    arguments: Sequence[Any] | None = None,
    **attributes: Any,
) -> Step:
    """A step before `root`, which makes this register."""
    register, spec = made
    at = replace(root, results=(register,), specs=(spec,))
    return calling(at, called, operands, title, arguments, **attributes)


def _renumbered(step: Step, same: Mapping[int, int]) -> Step:
    if not same or same.keys().isdisjoint(step.reads):
        return step
    operands = (same.get(o, o) if isinstance(o, int) else o for o in step.operands)
    return replace(step, operands=tuple(operands))
