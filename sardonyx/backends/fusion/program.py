"""A fused segment, ready to run: kernels, views and calls of the library in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sardonyx.backends.executable import Replay
from sardonyx.backends.fusion.kernel_source import KernelSource, source_of
from sardonyx.backends.fusion.kernels import Kernel
from sardonyx.backends.fusion.nodes import (
    Argument,
    Constant,
    Indexed,
    Node,
    Opaque,
    Part,
    sorted_nodes,
)
from sardonyx.backends.fusion.partition import Partition, Unit, partition
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.fusion.tracing import TRACING
from sardonyx.backends.shape_arrays import NoShapeRule
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Shape

Launch = Callable[[Sequence[Any]], None]


class Library(Protocol):
    """What a program asks of the array library that runs it."""

    def place(self, value: np.ndarray[Any, Any]) -> Any: ...
    def shield(self, value: Any) -> Any: ...
    def spec(self, value: Any) -> Any: ...
    def blank(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Return an array that holds anything."""

    def contiguous(self, array: Any, alignment: int) -> Any:
        """Return the array, or a copy that is aligned and whose elements lie in row-major order."""

    def launcher(self, source: KernelSource) -> Launch:
        """Compile a kernel; the function launches it on arrays."""


class NotFused(Exception):  # noqa: N818  (a signal, not an error)
    """A segment has to run step by step; the text is the reason."""


class UnexpectedArray(NotFused):
    """The library returned an array of another shape or dtype than NumPy would."""


@dataclass(frozen=True, slots=True)
class Action:
    """One unit, with the numbers of its arrays among the program's values."""

    run: Callable[[Sequence[Any]], Sequence[Any]]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    # The values that nothing reads any more.
    releases: tuple[int, ...]


class Program:
    """The function of a segment. It has no state, so threads may run it at the same time."""

    def __init__(self, divided: Partition, arguments: int, xp: Library) -> None:
        self.kernels = [unit for unit in divided.units if isinstance(unit, Kernel)]
        self._shield = xp.shield
        self._numbers: dict[Node, int] = {}
        self._arguments = arguments
        self._constants: list[Any] = []
        self._actions: list[Action] = []
        reads = [node for unit in divided.units for node in _reads(unit)] + list(divided.results)
        self._add_inputs(reads, xp)
        parts: dict[Any, list[Part]] = {unit: [] for unit in divided.units}
        for node in dict.fromkeys(reads):
            if isinstance(node, Part):
                parts[node.operands[0]].append(node)
        steps = [_step(unit, parts, xp) for unit in divided.units]
        for _, taken, writes in steps:
            for node in (*taken, *writes):
                self._number(node)
        self.results = [self._number(node) for node in divided.results]
        self._copied = {i for i, n in enumerate(divided.results) if isinstance(n, Constant)}
        self._add_actions(steps)

    def __call__(self, *arrays: Any) -> list[Any]:
        values = [*arrays, *self._constants]
        values += [None] * (len(self._numbers) - len(values))
        for action in self._actions:
            results = action.run([values[i] for i in action.reads])
            for number, result in zip(action.writes, results, strict=True):
                values[number] = result
            for number in action.releases:
                values[number] = None
        found = [values[number] for number in self.results]
        return [self._shield(x) if i in self._copied else x for i, x in enumerate(found)]

    def _number(self, node: Node) -> int:
        return self._numbers.setdefault(node, len(self._numbers))

    def _add_inputs(self, reads: Sequence[Node], xp: Library) -> None:
        """Number the arguments first, and then the constants, which are uploaded now."""
        by_position = {node.position: node for node in reads if isinstance(node, Argument)}
        for position in range(self._arguments):
            blank = Argument(shape=(), dtype=np.dtype(bool), position=position)
            self._number(by_position.get(position, blank))
        for node in reads:
            if isinstance(node, Constant) and node not in self._numbers:
                self._number(node)
                self._constants.append(xp.place(node.value))

    def _add_actions(self, steps: Sequence[_Step]) -> None:
        needed = {*self.results, *range(self._arguments + len(self._constants))}
        for run, read_nodes, written in reversed(steps):
            reads = tuple([self._number(node) for node in read_nodes])
            writes = tuple([self._number(node) for node in written])
            releases = tuple({*reads, *writes} - needed)
            needed.update(releases)
            self._actions.append(Action(run, reads, writes, releases))
        self._actions.reverse()


_Step = tuple[Callable[[Sequence[Any]], Sequence[Any]], Sequence[Node], Sequence[Node]]


def _reads(unit: Unit) -> Iterable[Node]:
    if isinstance(unit, Kernel):
        return unit.leaves
    return unit.operands[:1] if isinstance(unit, Indexed) else unit.operands


def _step(unit: Unit, parts: Mapping[Any, Sequence[Part]], xp: Library) -> _Step:
    """Return a unit's function of arrays, the nodes that it reads and those that it writes."""
    if isinstance(unit, Kernel):
        source = source_of(unit)
        return _launching(source, xp), source.reads, source.writes
    if isinstance(unit, Indexed):
        return _viewing(unit, xp), unit.operands[:1], (unit,)
    assert isinstance(unit, Opaque)
    return _calling(unit, parts[unit], xp), unit.operands, parts[unit]


def _launching(source: KernelSource, xp: Library) -> Any:
    launch = xp.launcher(source)
    specs = [(node.shape, node.dtype) for node in source.writes]

    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        results = [xp.blank(shape, dtype) for shape, dtype in specs]
        launch([*[xp.contiguous(array, source.alignment) for array in arrays], *results])
        return results

    return run


def _viewing(node: Indexed, xp: Library) -> Any:
    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        return (node.rule.view(xp, arrays[0], node.shape),)

    return run


def _calling(node: Opaque, parts: Sequence[Part], xp: Library) -> Any:
    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        results = node.call(xp, arrays)
        if len(results) != node.results:
            raise UnexpectedArray(f"{len(results)} arrays instead of {node.results}")
        for part in parts:
            shape, dtype = xp.spec(results[part.index])
            if (shape, dtype) != (part.shape, part.dtype) and not part.is_unsized:
                raise UnexpectedArray(f"{dtype}{list(shape)}, not {part.dtype}{list(part.shape)}")
        return [results[part.index] for part in parts]

    return run


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
