"""Steps and segments. A step is one call of an op, with numbered registers for its arrays."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.errors.node_errors import note_step
from sardonyx.graph.ir import Node
from sardonyx.graph.values.kinds import digest

Frame: TypeAlias = dict[int, Any]


class Call(Protocol):
    """A function of a backend and of arrays, with facts about its results."""

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Equal for calls that compute the same from equal arrays; None if that is unknown."""

    @property
    def is_unsized(self) -> bool:
        """Whether the shapes of its results depend on data."""

    @property
    def is_view(self) -> bool:
        """Whether its result is a view of the first array."""

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> Sequence[Any]: ...


@dataclass(frozen=True, eq=False, slots=True)
class Embedded:
    """A constant small enough to be written into the program."""

    value: np.ndarray[Any, Any]


Operand: TypeAlias = int | Embedded


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One call of an op: its node, its function, its operands and the registers of its results."""

    node: Node
    call: Call
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    specs: tuple[Spec, ...]
    blocks: tuple[Block, ...] = ()
    # The op's name if it is not the node's, after a rewrite.
    renamed: str | None = None
    # The operands that are registers. Computed once, since every pass over the steps asks for them.
    reads: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", tuple([o for o in self.operands if type(o) is int]))

    @property
    def title(self) -> str:
        return self.renamed or self.node.operator

    @property
    def place(self) -> str:
        """The name of the step in messages."""
        return f"{self.node.label[0].upper()}{self.node.label[1:]} ({self.node.operator})"

    def run(self, xp: Backend, frame: Frame, releases: Sequence[int] = ()) -> None:
        """Put the results into the frame, and remove the registers in `releases`."""
        frame.update(zip(self.results, self.results_of(xp, frame), strict=True))
        for register in releases:
            del frame[register]

    def results_of(self, xp: Backend, frame: Frame) -> Sequence[Any]:
        """Return the results for the arrays in the frame."""
        xp.begin_step()
        if xp.reports:
            xp = xp.at(self.place)
        arrays = [frame[o] if isinstance(o, int) else xp.asarray(o.value) for o in self.operands]
        try:
            return self.call(xp, arrays)
        except Exception as error:
            later = xp.deferred(self.call, arrays, self.specs)
            if later is None:
                note_step(error, self.node, arrays, xp)
                raise
            return later

    @property
    def captured(self) -> tuple[int, ...]:
        """The last operands, which only the blocks read."""
        return captures_of(self.blocks)

    @property
    def embedded(self) -> list[Embedded]:
        """The constants in the step's own operands, and in its blocks."""
        inner = [step for block in self.blocks for step in block.steps]
        results = [r for block in self.blocks for r in block.results]
        own = [o for o in (*self.operands, *results) if isinstance(o, Embedded)]
        return own + [e for step in inner for e in step.embedded]


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """The steps of a subgraph that runs on the device, as part of a step of the graph around it."""

    steps: tuple[Step, ...]
    results: tuple[Operand, ...]
    specs: tuple[Spec, ...]
    parameters: tuple[int, ...] = ()

    def run(
        self, xp: Backend, lookup: Callable[[int], Any], arguments: Sequence[Any] = ()
    ) -> tuple[Any, ...]:
        """Return the results. If the backend compiles, static ones are NumPy arrays."""
        local = {register: lookup(register) for register in self.captures}
        local.update(zip(self.parameters, arguments, strict=True))
        for step in self.steps:
            step.run(xp, local)
        return tuple(
            local[r] if isinstance(r, int) else r.value if xp.compiled else xp.asarray(r.value)
            for r in self.results
        )

    @property
    def captures(self) -> tuple[int, ...]:
        """The registers outside the block that it reads."""
        reads = [register for step in self.steps for register in step.reads]
        reads += [r for r in self.results if isinstance(r, int)]
        own = {register for step in self.steps for register in step.results}
        own.update(self.parameters)
        return tuple(dict.fromkeys(r for r in reads if r not in own))


def captures_of(blocks: Iterable[Block]) -> tuple[int, ...]:
    """Return the registers outside the blocks that they read."""
    return tuple(dict.fromkeys(r for block in blocks for r in block.captures))


class Segment:
    """Steps that run as one piece: on the host, or on the device in the backend's fastest form."""

    def __init__(
        self,
        steps: Sequence[Step],
        results: Sequence[int],
        fixed: Container[int] = (),
        *,
        host: bool = False,
    ) -> None:
        self.steps = tuple(steps)
        self.results = tuple(results)
        self.host = host
        computed = {register for step in steps for register in step.results}
        reads = sorted({register for step in steps for register in step.reads} - computed)
        # The arguments that change with each call, and weights and constants.
        self.inputs = tuple(register for register in reads if register not in fixed)
        self.fixed = tuple(register for register in reads if register in fixed)
        self.arguments = self.inputs + self.fixed
        self.releases = _releases(self.steps, self.results)

    def replay(self, xp: Backend, *arguments: Any) -> list[Any]:
        """Run the steps one by one. This is a pure function of the arguments."""
        frame: Frame = dict(zip(self.arguments, arguments, strict=True))
        for step, releases in zip(self.steps, self.releases, strict=True):
            step.run(xp, frame, releases)
        return [frame[register] for register in self.results]


def key_of(segment: Segment) -> Any:
    """Return a key, equal for segments that compute the same; None if that is unknown."""
    numbers = {register: i for i, register in enumerate(segment.arguments)}
    keys = []
    for step in segment.steps:
        key = step.call.key
        if key is None:
            return None
        wires = [numbers[o] if isinstance(o, int) else digest(o.value) for o in step.operands]
        keys.append((key, tuple(wires)))
        for register in step.results:
            numbers[register] = len(numbers)
    return tuple(keys), tuple(numbers[register] for register in segment.results)


def _releases(steps: Sequence[Step], results: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return for each step the registers that neither later steps nor the results need."""
    needed = set(results)
    releases = []
    for step in reversed(steps):
        registers = {*step.reads, *step.results} - needed
        releases.append(tuple(registers))
        needed |= registers
    return tuple(reversed(releases))


def without_dead_steps(steps: Sequence[Step], results: Sequence[int]) -> list[Step]:
    """Return the steps on which the results depend."""
    needed = set(results)
    live = []
    for step in reversed(steps):
        if not needed.isdisjoint(step.results):
            needed.update(step.reads)
            live.append(step)
    return live[::-1]
