"""Subgraphs as functions: walked through in place, or recorded as blocks that a step calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.standard import Array
from sardonyx.errors import SardonyxError
from sardonyx.graph.ir import Graph, ValueInfo
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Block
from sardonyx.graph.values.kinds import Device, Static, Value, as_value, digest
from sardonyx.ops.definition import NeedsHost

Walked = Callable[[Sequence[Value], Value], tuple[Value, ...]]
Recorder = Callable[[Sequence[Any], Any], Block]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Subgraph:
    """A graph that is an attribute of a node. Called with values, it is walked through in place."""

    graph: Graph
    xp: Backend
    walk: Walked
    recorder: Recorder
    # An array like the one that a value stands for.
    example: Callable[[Value], Any]
    # What was recorded of it: a block for each kind of arguments it may be called with.
    blocks: dict[Any, Block] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        return len(self.graph.outputs)

    def __call__(self, *arguments: Value, iteration: Value = None) -> tuple[Value, ...]:
        return self.walk([as_value(value) for value in arguments], as_value(iteration))

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        try:
            return self.shapes(*arguments, iteration=iteration)
        except NeedsHost:
            declared = tuple(_declared(info) for info in self.graph.outputs)
        if all(_tells_its_shape(info) for info in self.graph.outputs):
            return declared
        return self._found(arguments, iteration, declared)

    def _found(
        self, arguments: Sequence[Any], iteration: Any, declared: Sequence[Spec]
    ) -> tuple[Spec, ...]:
        """What the results are like where only a run can tell, of which no more than that is kept.

        There may be none: the values need not be such as the body was written for.
        """
        try:
            made = self(*arguments, iteration=iteration)
        except SardonyxError:
            return tuple(declared)
        return tuple(
            Spec(value.shape, value.dtype) if isinstance(value, (Static, Device)) else spec
            for value, spec in zip(made, declared, strict=True)
        )

    def shapes(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        """As `specs`, but only if it can run on the device as a whole."""
        number = None if iteration is None else self.example(as_value(iteration))
        return self.recorded([self.example(as_value(a)) for a in arguments], number).specs

    def recorded(self, arguments: Sequence[Any], iteration: Any) -> Block:
        key = kinds(self.xp, (*arguments, iteration))
        if key not in self.blocks:
            self.blocks[key] = self.recorder(arguments, iteration)
        return self.blocks[key]


def _tells_its_shape(info: ValueInfo) -> bool:
    return info.shape is not None and all(isinstance(size, int) for size in info.shape)


def _declared(info: ValueInfo) -> Spec:
    """What the graph says of an output that cannot be known before it is there."""
    if info.dtype is None:
        return Spec((), np.dtype(object))
    return Spec(tuple(d if isinstance(d, int) else 0 for d in info.shape or ()), info.dtype)


def kinds(xp: Backend, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What a body is recorded for: shapes and dtypes, and the values that are known."""
    return tuple(_kind(xp, argument) for argument in arguments)


def _kind(xp: Backend, argument: Any) -> Any:
    if argument is None:
        return None
    return (digest(argument) if _is_known(xp, argument) else None, *xp.spec(argument))


def _is_known(xp: Backend, argument: Any) -> bool:
    """Whether the argument was static while tracing; NumPy's own arrays are data like others."""
    return xp.compiled and isinstance(argument, np.ndarray)


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class Body:
    """A subgraph of which blocks are recorded, as the function of arrays that an op is given."""

    blocks: Mapping[Any, Block]
    outputs: int
    xp: Backend
    frame: Mapping[int, Any]
    # While recording, what has no block yet gets one.
    subgraph: Subgraph | None

    def __call__(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        block = self._block(arguments, iteration)
        numbered = () if iteration is None else (iteration,)
        given = [a for a in (*arguments, *numbered) if not _is_known(self.xp, a)]
        return block.run(self.xp, self.frame, given)

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        return self._block(arguments, iteration).specs

    def _block(self, arguments: Sequence[Any], iteration: Any) -> Block:
        if self.subgraph is not None:
            return self.subgraph.recorded(arguments, iteration)
        return self.blocks[kinds(self.xp, (*arguments, iteration))]

    def gradients(self, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
        """The derivatives of the sum of its first result by the first `count` arrays.

        JAX computes them for libraries that have no derivatives.
        """
        if self.xp.differentiates:
            return self.xp.gradients(self, arrays, count)
        self.specs(*arrays)  # Records the body, which is then run on JAX.
        jax = find("jax").uncompiled()
        with jax.scope():
            moved = [jax.put(self.xp.fetch(array)) for array in arrays]
            found = jax.gradients(self._on(jax), moved, count)
            return tuple(self.xp.put(jax.fetch(gradient)) for gradient in found)

    def _on(self, xp: Backend) -> Body:
        """The same on another backend."""
        captured = (register for block in self.blocks.values() for register in block.captures)
        moved = {r: xp.put(self.xp.fetch(self.frame[r])) for r in captured}
        return replace(self, xp=xp, frame=moved, subgraph=None)


@dataclass(eq=False, repr=False, slots=True)
class BodyCall:
    """An op that calls subgraphs: its own arrays come first, then those the subgraphs capture."""

    call: OpCall
    # How many arrays are the op's own.
    own: int
    blocks_of: Mapping[str, Mapping[Any, Block]]
    # While recording: the subgraphs, and where captured arrays come from before it is known which.
    bodies: Mapping[str, Subgraph]
    stand_ins: Mapping[int, Any]
    outputs: Mapping[str, int]

    key: ClassVar[None] = None
    is_unsized: ClassVar[bool] = False
    is_view: ClassVar[bool] = False

    @classmethod
    def of(cls, call: OpCall, own: int, bodies: Mapping[str, Subgraph], stand_ins: Any) -> BodyCall:
        blocks = {name: body.blocks for name, body in bodies.items()}
        outputs = {name: body.outputs for name, body in bodies.items()}
        return cls(call, own, blocks, bodies, stand_ins, outputs)

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        captured = arrays[self.own :]
        frame = dict(zip(self.captures, captured, strict=True)) if captured else self.stand_ins
        bodies = {
            name: Body(blocks, self.outputs[name], xp, frame, self.bodies.get(name))
            for name, blocks in self.blocks_of.items()
        }
        call = replace(self.call, attributes={**self.call.attributes, **bodies})
        return call(xp, arrays[: self.own])

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for blocks in self.blocks_of.values() for block in blocks.values())

    @property
    def captures(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(r for block in self.blocks for r in block.captures))

    def settle(self) -> None:
        """Let go of the graph, once it is recorded."""
        self.bodies, self.stand_ins = {}, {}
