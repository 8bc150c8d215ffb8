"""Steps: one call of an op each, in numbered registers, and the segments that they run in."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.errors.node_errors import note_step
from sardonyx.graph.ir import Node
from sardonyx.graph.values.kinds import digest

Frame: TypeAlias = dict[int, Any]


class Call(Protocol):
    """A function of a backend and of arrays, and what is known of it."""

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Equal for two calls that do the same to equal arrays; None if that is unknown."""

    @property
    def is_unsized(self) -> bool:
        """Whether the shapes of its results depend on data."""

    @property
    def is_view(self) -> bool:
        """Whether its result is only another look at the first array."""

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> Sequence[Any]: ...


@dataclass(frozen=True, eq=False, slots=True)
class Embedded:
    """A constant small enough to stand in the program's own text."""

    value: np.ndarray[Any, Any]


Operand: TypeAlias = int | Embedded


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One call of an op: where its arrays come from, and where its results go."""

    node: Node
    call: Call
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    specs: tuple[Spec, ...]
    blocks: tuple[Block, ...] = ()
    # What the blocks read besides the step's own operands; these come last among the operands.
    captured: tuple[int, ...] = ()
    # The op's name where a rewrite has replaced the node's.
    renamed: str | None = None

    def with_blocks(self, call: Any) -> Step:
        """This step, now that it is known what its subgraphs are and what they capture."""
        blocks, captured = call.blocks, call.captures
        operands = (*self.operands, *captured)
        return replace(self, operands=operands, blocks=blocks, captured=captured)

    @property
    def title(self) -> str:
        return self.renamed or self.node.operator

    @property
    def place(self) -> str:
        """How messages name the step."""
        return f"{self.node.label[0].upper()}{self.node.label[1:]} ({self.node.operator})"

    def run(self, xp: Backend, frame: Frame, releases: Sequence[int] = ()) -> None:
        """Put the results into the frame, and take the registers out that nothing reads later."""
        if xp.reports:
            xp = xp.at(self.place)
        arrays = [frame[o] if isinstance(o, int) else xp.asarray(o.value) for o in self.operands]
        try:
            results = self.call(xp, arrays)
        except Exception as error:
            note_step(error, self.node, arrays, xp)
            raise
        frame.update(zip(self.results, results, strict=True))
        for register in releases:
            del frame[register]

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(o for o in self.operands if isinstance(o, int))

    @property
    def embedded(self) -> list[Embedded]:
        """The constants that stand in the step itself, and in its blocks."""
        inner = [step for block in self.blocks for step in block.steps]
        results = [r for block in self.blocks for r in block.results]
        own = [o for o in (*self.operands, *results) if isinstance(o, Embedded)]
        return own + [e for step in inner for e in step.embedded]


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """The steps of a subgraph that runs on the device, inside a step of the graph around it."""

    steps: tuple[Step, ...]
    results: tuple[Operand, ...]
    specs: tuple[Spec, ...]
    parameters: tuple[int, ...] = ()

    def run(
        self, xp: Backend, frame: Mapping[int, Any], arguments: Sequence[Any] = ()
    ) -> tuple[Any, ...]:
        """The results. Those known while tracing are NumPy's arrays where the backend compiles."""
        local = {register: frame[register] for register in self.captures}
        local.update(zip(self.parameters, arguments, strict=True))
        for step in self.steps:
            step.run(xp, local)
        return tuple(
            local[r] if isinstance(r, int) else r.value if xp.compiled else xp.asarray(r.value)
            for r in self.results
        )

    @property
    def captures(self) -> tuple[int, ...]:
        """The registers that the block reads and does not make."""
        read = [register for step in self.steps for register in step.reads]
        read += [r for r in self.results if isinstance(r, int)]
        made = {register for step in self.steps for register in step.results}
        made.update(self.parameters)
        return tuple(dict.fromkeys(r for r in read if r not in made))


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
        made = {register for step in steps for register in step.results}
        read = sorted({register for step in steps for register in step.reads} - made)
        # What changes with each call, and what is bound to the program: weights and constants.
        self.inputs = tuple(register for register in read if register not in fixed)
        self.fixed = tuple(register for register in read if register in fixed)
        self.arguments = self.inputs + self.fixed
        self.releases = _releases(self.steps, self.results)

    def replay(self, xp: Backend, *arguments: Any) -> list[Any]:
        """Run the steps one by one: a pure function of the arguments."""
        frame: Frame = dict(zip(self.arguments, arguments, strict=True))
        for step, releases in zip(self.steps, self.releases, strict=True):
            step.run(xp, frame, releases)
        return [frame[register] for register in self.results]


def key_of(segment: Segment) -> Any:
    """Equal for segments that do the same to equal arguments; None if that is unknown."""
    numbers = {register: i for i, register in enumerate(segment.arguments)}
    keys = []
    for step in segment.steps:
        key = step.call.key
        if key is None:
            return None
        keys.append((key, _wires(step, numbers)))
        for register in step.results:
            numbers[register] = len(numbers)
    return tuple(keys), tuple(numbers[register] for register in segment.results)


def _wires(step: Step, numbers: dict[int, int]) -> tuple[Any, ...]:
    return tuple(numbers[o] if isinstance(o, int) else digest(o.value) for o in step.operands)


def _releases(steps: Sequence[Step], kept: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    seen = set(kept)
    releases = []
    for step in reversed(steps):
        touched = {*step.reads, *step.results}
        releases.append(tuple(touched - seen))
        seen |= touched
    return tuple(reversed(releases))


def without_dead_steps(steps: Sequence[Step], results: Sequence[int]) -> list[Step]:
    """The steps on which the results depend."""
    needed = set(results)
    kept = []
    for step in reversed(steps):
        if needed.intersection(step.results):
            needed.update(step.reads)
            kept.append(step)
    return kept[::-1]
