"""The units of a segment as functions of arrays: kernels, views, and calls of the library."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sardonyx.backends.fusion.kernel_source import KernelSource, source_of
from sardonyx.backends.fusion.kernels import Kernel
from sardonyx.backends.fusion.nodes import Indexed, Node, Opaque, Part
from sardonyx.backends.fusion.partition import Unit
from sardonyx.backends.standard import Shape

Launch = Callable[[Sequence[Any]], None]


class Library(Protocol):
    """What a program asks of the array library that runs it."""

    # The functions that write to an array `out`.
    writes_into: frozenset[str]

    def place(self, value: np.ndarray[Any, Any]) -> Any: ...
    def shield(self, value: Any) -> Any: ...
    def spec(self, value: Any) -> Any: ...
    def blank(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Return an array that holds anything."""

    def placed(self, block: Any, offset: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Return the array at an offset of an array of bytes."""

    def apart(self, array: Any, block: Any) -> Any:
        """Return the array, or a copy if it lies in the block."""

    def contiguous(self, array: Any, alignment: int) -> Any:
        """Return the array, or a copy that is aligned and whose elements lie in row-major order."""

    def launcher(self, source: KernelSource) -> Launch:
        """Compile a kernel; the function launches it on arrays."""

    def current_stream(self) -> Hashable:
        """Name the order in which work runs now; None if it shares no memory with later work."""


class NotFused(Exception):  # noqa: N818  (a signal, not an error)
    """A segment has to run step by step; the text is the reason."""


class UnexpectedArray(NotFused):
    """The library returned an array of another shape or dtype than NumPy would."""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One unit: a function of the arrays that it reads, and of those that it may write to.

    For each of its results the function gets an array to write to, or None; it returns them all.
    """

    run: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
    reads: Sequence[Node]
    writes: Sequence[Node]
    is_view: bool = False
    # Whether it writes to the arrays that it gets.
    writes_into: bool = False
    # The nodes that it reads whose array its only result may take.
    overwritable: Sequence[Node] = ()
    # The library's function that it calls, if it does; "" for a step of several calls.
    called: str | None = None


def read_by(unit: Unit) -> Iterable[Node]:
    """Return the nodes whose arrays a unit reads."""
    if isinstance(unit, Kernel):
        return unit.leaves
    return unit.operands[:1] if isinstance(unit, Indexed) else unit.operands


def step_of(unit: Unit, parts: Mapping[Any, Sequence[Part]], xp: Library) -> Step:
    """Return the step of a unit; `parts` has the results that are read of each opaque call."""
    if isinstance(unit, Kernel):
        source = source_of(unit)
        return Step(
            _launching(source, xp),
            source.reads,
            source.writes,
            writes_into=True,
            overwritable=source.overwritable,
        )
    if isinstance(unit, Indexed):
        return Step(_viewing(unit, xp), unit.operands[:1], (unit,), is_view=True)
    assert isinstance(unit, Opaque)
    writes_into = unit.name in xp.writes_into and unit.results == 1
    run = _calling(unit, parts[unit], xp, writes_into)
    return Step(run, unit.operands, parts[unit], writes_into=writes_into, called=unit.name)


def _launching(source: KernelSource, xp: Library) -> Any:
    launch = xp.launcher(source)
    specs = [(node.shape, node.dtype) for node in source.writes]

    def run(arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        results = [
            xp.blank(*spec) if target is None else target
            for spec, target in zip(specs, into, strict=True)
        ]
        launch([*[xp.contiguous(array, source.alignment) for array in arrays], *results])
        return results

    return run


def _viewing(node: Indexed, xp: Library) -> Any:
    def run(arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        return (node.rule.view(xp, arrays[0], node.shape),)

    return run


def _calling(node: Opaque, parts: Sequence[Part], xp: Library, writes_into: bool) -> Any:
    def run(arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        target = into[0] if writes_into and into else None
        options = {} if target is None else {"out": target}
        results = node.call(xp, arrays, **options)
        if len(results) != node.results:
            raise UnexpectedArray(f"{len(results)} arrays instead of {node.results}")
        for part in parts:
            shape, dtype = xp.spec(results[part.index])
            if (shape, dtype) != (part.shape, part.dtype) and not part.is_unsized:
                raise UnexpectedArray(f"{dtype}{list(shape)}, not {part.dtype}{list(part.shape)}")
        return [results[part.index] for part in parts]

    return run
