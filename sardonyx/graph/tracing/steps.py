"""Steps and segments. A step is one call of an op, with numbered registers for its arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, displayed, element, joined, muted
from sardonyx.display.tables import table
from sardonyx.display.text import WIDTH
from sardonyx.display.units import counted, more_text
from sardonyx.graph.errors.node_errors import note_step
from sardonyx.graph.ir import Node
from sardonyx.graph.tracing.scope_names import scope_name, unique
from sardonyx.graph.values.kinds import digest, spec_text
from sardonyx.printable import printable, shortened
from sardonyx.stopping import stop_if_asked

Frame: TypeAlias = dict[int, Any]

# How many steps the text of a segment shows.
_SHOWN = 17


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


# Nothing changes one; it is not frozen, because frozen ones take six times as long to create.
@dataclass(eq=False, slots=True)
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
    # The nodes that a rewrite fused into the step; empty if it is one node's.
    fused: tuple[Node, ...] = ()
    # The path of the functions and subgraphs around the node.
    path: str = ""
    # The nodes of a chain of products that runs as one step, one per product.
    chained: tuple[Node, ...] = ()
    # The operands that are registers. Computed once, since every pass over the steps asks for them.
    reads: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = tuple([o for o in self.operands if type(o) is int])

    # These two are for rewrites, which make most steps anew: `replace` takes four times as long.

    def calling(self, call: Call, operands: tuple[Operand, ...], renamed: str | None) -> Step:
        """Return a step with the same results that calls something else."""
        return Step(
            *(self.node, call, operands, self.results, self.specs, self.blocks),
            *(renamed, self.fused, self.path, self.chained),
        )

    def fusing(self, nodes: tuple[Node, ...]) -> Step:
        """Return the step as the one that computes all of these nodes."""
        return Step(
            *(self.node, self.call, self.operands, self.results, self.specs, self.blocks),
            *(self.renamed, nodes, self.path, self.chained),
        )

    @property
    def title(self) -> str:
        return self.renamed or self.node.operator

    @property
    def origin(self) -> str:
        """The operators of the nodes that the step computes, or the node that it is part of."""
        if self.fused:
            kinds = Counter(node.operator for node in self.fused)
            return ", ".join(f"{n} {name}" if n > 1 else name for name, n in kinds.items())
        return self.node.operator if self.title != self.node.operator else ""

    def text(self, names: Mapping[int, str]) -> str:
        """Return the step as a line, such as `y: float32[2] = Add(a, b)`."""
        return f"{', '.join(self.result_texts(names))} = {self.call_text(names)}"

    def result_texts(self, names: Mapping[int, str]) -> list[str]:
        """Return the names, dtypes and shapes of the results."""
        pairs = zip(self.results, self.specs, strict=True)
        return [f"{operand_text(register, names)}: {spec_text(spec)}" for register, spec in pairs]

    def call_text(self, names: Mapping[int, str]) -> str:
        """Return what the step calls, and its operands without those that only its blocks read."""
        own = self.operands[: len(self.operands) - len(self.captured)]
        return f"{self.title}({', '.join(operand_text(operand, names) for operand in own)})"

    @property
    def place(self) -> str:
        """The name of the step in messages."""
        return f"{self.node.label[0].upper()}{self.node.label[1:]} ({self.node.operator})"

    @property
    def scope(self) -> str:
        """The name of the step for compilers and profilers."""
        return scope_name(self.path, self.node)

    def run(self, xp: Backend, frame: Frame, releases: Sequence[int] = ()) -> None:
        """Put the results into the frame, and remove the registers in `releases`."""
        frame.update(zip(self.results, self.results_of(xp, frame), strict=True))
        for register in releases:
            del frame[register]

    def results_of(self, xp: Backend, frame: Frame) -> Sequence[Any]:
        """Return the results for the arrays in the frame."""
        stop_if_asked()
        if xp.reports:
            xp = xp.at(self.place)
        arrays = [frame[o] if isinstance(o, int) else xp.asarray(o.value) for o in self.operands]
        xp.begin_step()
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
        """Return the results. Where tracing tells them apart, static ones are NumPy arrays."""
        local = {register: lookup(register) for register in self.captures}
        local.update(zip(self.parameters, arguments, strict=True))
        run_steps(self.steps, xp, local)
        return tuple(
            local[r]
            if isinstance(r, int)
            else r.value
            if xp.is_static(r.value)
            else xp.asarray(r.value)
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
        # The names of registers, if the segment was taken from a program.
        self.names: Mapping[int, str] = {}
        computed = {register for step in steps for register in step.results}
        reads = sorted({register for step in steps for register in step.reads} - computed)
        # The arguments that change with each call, and weights and constants.
        self.inputs = tuple(register for register in reads if register not in fixed)
        self.fixed = tuple(register for register in reads if register in fixed)
        self.arguments = self.inputs + self.fixed
        self.releases = _releases(self.steps, self.results)

    def named(self, names: Mapping[int, str]) -> Segment:
        """Return the same segment, which shows its registers by these names."""
        segment = copy(self)
        segment.names = names
        return segment

    def __repr__(self) -> str:
        where = "host" if self.host else "device"
        lines = [f"segment on the {where}: {counted(len(self.steps), 'step')}"]
        lines += [shortened(f"  {step.text(self.names)}", WIDTH) for step in self.steps[:_SHOWN]]
        if len(self.steps) > _SHOWN:
            lines.append(f"  {more_text(len(self.steps) - _SHOWN)}")
        return "\n".join(printable(line, WIDTH) for line in lines)

    def _repr_html_(self) -> str:
        where = "host" if self.host else "device"
        title = f"Segment on the {where}: {counted(len(self.steps), 'step')}"
        return displayed(title, self.as_table())

    def as_table(self, longest: int = 100_000) -> Html:
        """Return the steps as a table of at most about `longest` characters."""
        titles = ("", "results", "step", "from", "node")
        rows = (_cells(i, step, self.names) for i, step in enumerate(self.steps))
        count = len(self.steps)
        return table(titles, rows, total=count, numbers=[0], most=1000, longest=longest)

    def replay(self, xp: Backend, *arguments: Any) -> list[Any]:
        """Run the steps one by one. This is a pure function of the arguments."""
        frame: Frame = dict(zip(self.arguments, arguments, strict=True))
        run_steps(self.steps, xp, frame, self.releases)
        return [frame[register] for register in self.results]


def operand_text(operand: Operand, names: Mapping[int, str]) -> str:
    """Return an operand's name, or the value of a constant of a few elements."""
    if isinstance(operand, int):
        return names.get(operand, f"%{operand}")
    return content_text(operand.value)


def content_text(value: np.ndarray[Any, Any]) -> str:
    """Return a static value, or only its dtype and shape if it has more than a few elements."""
    if value.size > 8:
        return spec_text(Spec(value.shape, value.dtype))
    return str(value.tolist())


def _cells(place: int, step: Step, names: Mapping[int, str]) -> tuple[object, ...]:
    """Return a step as a row of a table, with the steps of its blocks folded."""
    call: Html = code(step.call_text(names))
    for block in step.blocks:
        lines = [element("div", code(inner.text(names))) for inner in block.steps[:_SHOWN]]
        lines.append(
            muted(more_text(len(block.steps) - _SHOWN)) if block.steps[_SHOWN:] else Html()
        )
        call = joined([call, fold("block", *lines, note=counted(len(block.steps), "step"))])
    node = step.node.name or step.node.first_output
    return place, joined(map(code, step.result_texts(names)), ", "), call, step.origin, muted(node)


def run_steps(
    steps: Sequence[Step],
    xp: Backend,
    frame: Frame,
    releases: Iterable[Sequence[int]] | None = None,
) -> None:
    """Run steps one by one, under their names if the library passes names to its compiler."""
    all_releases = repeat(()) if releases is None else releases
    if not xp.names_steps:
        for step, released in zip(steps, all_releases, strict=False):
            step.run(xp, frame, released)
        return
    for step, released, scope in zip(steps, all_releases, scopes_of(steps), strict=False):
        with xp.named_step(scope):
            step.run(xp, frame, released)


def scopes_of(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the names of steps for compilers and profilers, each different from the others."""
    return unique(step.scope for step in steps)


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
