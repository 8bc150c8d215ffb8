"""What tracing leaves: segments of steps that replay without looking at the graph again.

Values travel in numbered registers. A `Step` is one call of an op, a `Segment` the steps that run
as one piece, a `Stage` a segment and what decides how the program goes on after it. Stages form a
tree, because a value that is read on the host may lead elsewhere at the next call; a `Program` is
one path through that tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend, Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.listing import listing
from sardonyx.graph.structure import Node
from sardonyx.graph.values import Device, Value, Weight
from sardonyx.ops.definition import Map, MapRows

Frame: TypeAlias = dict[int, Any]
Call: TypeAlias = Callable[[Backend, Sequence[Any]], Sequence[Any]]


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

    def run(self, xp: Backend, frame: Frame) -> None:
        arrays = [frame[o] if isinstance(o, int) else xp.asarray(o.value) for o in self.operands]
        frame.update(zip(self.results, self.call(xp, arrays), strict=True))

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
        self, steps: Sequence[Step], results: Sequence[int], order: Callable[[int], Any], host: bool
    ) -> None:
        self.steps = tuple(steps)
        self.results = tuple(results)
        self.host = host
        made = {register for step in steps for register in step.results}
        read = {register for step in steps for register in step.reads}
        self.arguments = tuple(sorted(read - made, key=order))
        self._releases = _releases(self.steps, self.results)
        self._run: Callable[..., Sequence[Any]] | None = None

    def replay(self, xp: Backend, *arguments: Any) -> list[Any]:
        """Run the steps one by one: a pure function of the arguments."""
        frame: Frame = dict(zip(self.arguments, arguments, strict=True))
        for step, releases in zip(self.steps, self._releases, strict=True):
            step.run(xp, frame)
            for register in releases:
                del frame[register]
        return [frame[register] for register in self.results]

    def function(self, backend: Backend) -> Callable[..., Sequence[Any]]:
        """The segment as a function of its arguments, compiled where the backend compiles."""
        if self._run is None:
            if self.host:
                self._run = partial(_replay_on_host, self, backend)
            else:
                self._run = backend.compile(partial(self.replay, backend))
        return self._run

    def run(self, backend: Backend, frame: Frame, *, inline: bool = False) -> None:
        function = partial(self.replay, backend) if inline else self.function(backend)
        results = function(*[frame[register] for register in self.arguments])
        frame.update(zip(self.results, results, strict=True))


def _replay_on_host(segment: Segment, backend: Backend, *arguments: Any) -> list[Any]:
    fetched = (backend.fetch(a) if backend.owns(a) else a for a in arguments)
    with HOST.scope():
        results = segment.replay(HOST, *fetched)
    return [r if r.dtype == object else backend.put(r) for r in results]


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


@dataclass(eq=False, slots=True)
class Stage:
    """A segment, what it needs besides the stages before it, and what follows."""

    segment: Segment | None = None
    weights: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[int, Any] = field(default_factory=dict)
    # The registers whose values, or shapes, the rest of the program was recorded for.
    reads: tuple[int, ...] = ()
    measures: tuple[int, ...] = ()
    following: dict[tuple[Any, ...], Stage] = field(default_factory=dict)
    # The model's outputs, in the last stage of a path: values whose arrays are in registers.
    outputs: tuple[Value, ...] | None = None


def output_of(value: Value, frame: Frame, backend: Backend) -> Any:
    """An output's arrays; a static one stays what it is, for the caller's library to take."""
    if isinstance(value, list):
        return [output_of(one, frame, backend) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=output_of(value.values, frame, backend))
    if isinstance(value, Weight):
        return backend.shield(frame[value.register])
    return frame[value.register] if isinstance(value, Device) else value


@dataclass(frozen=True, eq=False, slots=True)
class Named:
    """What became of one named value of the graph."""

    kind: str
    spec: Spec | None
    register: int | None = None
    source: str | None = None
    static: np.ndarray[Any, Any] | None = None


class Program:
    """One path through a recording: what each value became, and the segments that run.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> program = model.trace(np.zeros((1, 8, 48), np.float32))
    >>> len(program.segments)
    1
    """

    def __init__(
        self,
        title: str,
        backend: Backend,
        stages: Sequence[Stage],
        names: Mapping[str, Named],
        constants: Mapping[str, Any],
    ) -> None:
        self.title = title
        self.backend = backend
        self.stages = tuple(stages)
        self._names = names
        self.constants = constants

    def kind(self, name: str) -> str:
        """How a value lives: "static", "device", "alias" or "host"."""
        return self.named(name).kind

    def named(self, name: str) -> Named:
        try:
            return self._names[name]
        except KeyError:
            raise KeyError(f"the graph has no value named '{name}'") from None

    @property
    def names(self) -> Mapping[str, Named]:
        """Every value of the graph, in the order in which tracing met it."""
        return self._names

    @property
    def static(self) -> dict[str, np.ndarray[Any, Any]]:
        """The values known while tracing, by name: they cost nothing at run time."""
        return {n: v.static for n, v in self._names.items() if v.static is not None}

    @property
    def aliases(self) -> dict[str, str]:
        """For each alias the name of the value whose buffer it is."""
        return {n: v.source for n, v in self._names.items() if v.kind == "alias" and v.source}

    @property
    def segments(self) -> list[Segment]:
        """The pieces that run at each call, in order."""
        return [stage.segment for stage in self.stages if stage.segment is not None]

    def __str__(self) -> str:
        return listing(self)
