"""A fused segment, ready to run: kernels, views and calls of the library in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.executable import Replay
from sardonyx.backends.fusion.arenas import Arena, Arenas
from sardonyx.backends.fusion.kernels import Kernel
from sardonyx.backends.fusion.nodes import Argument, Constant, Node, Part, sorted_nodes
from sardonyx.backends.fusion.outer_results import outer_results
from sardonyx.backends.fusion.partition import Partition, partition
from sardonyx.backends.fusion.placement import Placement
from sardonyx.backends.fusion.steps import Library, NotFused, Step, read_by, step_of
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.fusion.tracing import TRACING
from sardonyx.backends.shape_arrays import NoShapeRule
from sardonyx.backends.shape_backend import SHAPES

BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Action:
    """One step, with the numbers of its arrays among the program's values."""

    run: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    # The values that nothing reads any more.
    releases: tuple[int, ...]
    called: str | None


class Program:
    """The function of a segment. Threads may run it at the same time: each call has an arena."""

    def __init__(self, divided: Partition, arguments: int, xp: Library) -> None:
        self.kernels = [unit for unit in divided.units if isinstance(unit, Kernel)]
        self._xp = xp
        self._numbers: dict[Node, int] = {}
        self._arguments = arguments
        self._constants: list[Any] = []
        self.actions: list[Action] = []
        reads = [node for unit in divided.units for node in read_by(unit)] + list(divided.results)
        self._add_inputs(reads)
        parts: dict[Any, list[Part]] = {unit: [] for unit in divided.units}
        for node in dict.fromkeys(reads):
            if isinstance(node, Part):
                parts[node.operands[0]].append(node)
        steps = [step_of(unit, parts, xp) for unit in divided.units]
        for step in steps:
            for node in (*step.reads, *step.writes):
                self._number(node)
        self.results = [self._number(node) for node in divided.results]
        self.placement = Placement(steps, divided.results)
        self._add_actions(steps)
        self._outer = outer_results(self.placement, divided.results, self._numbers)
        bases = [self.placement.base(node) for node in divided.results]
        self._result_bases = list(zip(self.results, bases, strict=True))
        self._copied = {i for i, node in enumerate(bases) if isinstance(node, Constant)}
        self._no_arena = Arena(None, (None,) * (len(self._numbers) - self._inputs))
        self._arenas = Arenas(self.new_arena, xp.current_stream)

    def __call__(self, *arrays: Any) -> list[Any]:
        arena = self._arenas.take() if self.placement.lifetimes else self._no_arena
        try:
            values = self.run(arrays, arena)
        finally:
            self._arenas.give_back(arena)
        return self.results_of(values)

    def run(self, arrays: Sequence[Any], arena: Arena) -> list[Any]:
        """Run all steps, and return the values; those that no result needs are None."""
        values = [*arrays, *self._constants, *arena.arrays]
        for action in self.actions:
            into = [values[i] for i in action.writes]
            results = action.run([values[i] for i in action.reads], into)
            if action.called is not None and arena.block is not None:
                # A call may return a view of its operand, whose place others use later.
                results = [
                    result if result is target else self._xp.apart(result, arena.block)
                    for result, target in zip(results, into, strict=True)
                ]
            for number, result in zip(action.writes, results, strict=True):
                values[number] = result
            for number in action.releases:
                values[number] = None
        return values

    def results_of(self, values: Sequence[Any] | Mapping[int, Any]) -> list[Any]:
        """Return the results, from their arrays by number."""
        shield, copied = self._xp.shield, self._copied
        return [shield(values[n]) if i in copied else values[n] for i, n in enumerate(self.results)]

    def new_arena(self) -> Arena:
        """Allocate an arena, whose arrays hold anything."""
        stream = self._xp.current_stream()
        block = self._xp.blank((self.placement.layout.size,), BYTE)
        arrays = list(self._no_arena.arrays)
        for node, offset in self.placement.offsets.items():
            place = self._numbers[node] - self._inputs
            arrays[place] = self._xp.placed(block, offset, node.shape, node.dtype)
        return Arena(block, tuple(arrays), stream)

    def release(self) -> None:
        """Free the memory that is kept for the next calls."""
        self._arenas.release()

    # -- for a graph, which holds the steps alone ---------------------------------------------

    def outer_values(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """Return the results that no step computes, by number, for these arguments."""
        return self._outer.of([*arrays, *self._constants])

    @property
    def computed(self) -> list[int]:
        """The numbers of the results that steps compute, each once."""
        inner = [n for n, node in self._result_bases if not isinstance(node, (Argument, Constant))]
        return list(dict.fromkeys(inner))

    @property
    def positions_read(self) -> list[int]:
        """The arguments whose elements steps read."""
        read = [node for step in self.placement.steps if not step.is_view for node in step.reads]
        bases = dict.fromkeys(map(self.placement.base, read))
        return sorted(node.position for node in bases if isinstance(node, Argument))

    @property
    def launches(self) -> int:
        """How many steps are kernels or calls."""
        return sum(not step.is_view for step in self.placement.steps)

    @property
    def called(self) -> list[str]:
        """The names of the library's functions that steps call; "" for steps of several calls."""
        return [step.called for step in self.placement.steps if step.called is not None]

    # -- construction ---------------------------------------------------------------------------

    @property
    def _inputs(self) -> int:
        return self._arguments + len(self._constants)

    def _number(self, node: Node) -> int:
        return self._numbers.setdefault(node, len(self._numbers))

    def _add_inputs(self, reads: Sequence[Node]) -> None:
        """Number the arguments first, and then the constants, which are uploaded now."""
        by_position = {node.position: node for node in reads if isinstance(node, Argument)}
        for position in range(self._arguments):
            blank = Argument(shape=(), dtype=np.dtype(bool), position=position)
            self._number(by_position.get(position, blank))
        for node in reads:
            if isinstance(node, Constant) and node not in self._numbers:
                self._number(node)
                self._constants.append(self._xp.place(node.value))

    def _add_actions(self, steps: Sequence[Step]) -> None:
        needed = {*self.results, *range(self._inputs)}
        for step in reversed(steps):
            reads = tuple([self._number(node) for node in step.reads])
            writes = tuple([self._number(node) for node in step.writes])
            releases = tuple({*reads, *writes} - needed)
            needed.update(releases)
            self.actions.append(Action(step.run, reads, writes, releases, step.called))
        self.actions.reverse()


def fused(function: Replay, arguments: Sequence[Any], xp: Any) -> Program:
    """Trace a function of a backend and of arrays like these, and compile its kernels."""
    specs = [xp.spec(argument) for argument in arguments]
    symbols = [
        TRACING.symbol(Argument(shape=shape, dtype=dtype, position=i))
        for i, (shape, dtype) in enumerate(specs)
    ]
    try:
        with SHAPES.scope():
            results = function(TRACING, *symbols)
    except NoShapeRule:
        raise NotFused("the shape of an array is unknown") from None
    if not all(isinstance(result, Symbol) for result in results):
        raise NotFused("a result is no array of the device")
    nodes = sorted_nodes([result.node for result in results])
    if any(isinstance(o, Part) and o.is_unsized for node in nodes for o in node.operands):
        raise NotFused("a shape depends on data")
    return Program(partition([result.node for result in results]), len(symbols), xp)
