"""Subgraphs as functions: walked in place, or recorded as blocks that a step calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.shape_arrays import ShapeArray, shape_array
from sardonyx.backends.standard import Array
from sardonyx.errors import SardonyxError
from sardonyx.graph.ir import Graph, ValueInfo, names_read
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Block, captures_of
from sardonyx.graph.values.kinds import Device, Static, Value, as_value, digest
from sardonyx.ops.definition import NeedsHost

Walk: TypeAlias = Callable[[Sequence[Value], Value], tuple[Value, ...]]
Recorder: TypeAlias = Callable[[Sequence[Any], Any], Block]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Subgraph:
    """A graph that is an attribute of a node. A call with values walks it in place."""

    graph: Graph
    xp: Backend
    walk: Walk
    recorder: Recorder
    # Returns an array like the one that a value stands for.
    example: Callable[[Value], Any]
    # The blocks recorded so far, by the kinds of arguments.
    blocks: dict[Any, Block] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        return len(self.graph.outputs)

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        return self.graph.inputs

    def reads(self, number: int) -> bool:
        name = self.graph.inputs[number].name
        return any(name in names_read(node) for node in self.graph.nodes)

    def __call__(self, *arguments: Value, iteration: Value = None) -> tuple[Value, ...]:
        return self.walk([as_value(value) for value in arguments], as_value(iteration))

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        """Return the results' shapes and dtypes, from a walk if the graph does not declare them."""
        try:
            return self.shapes(*arguments, iteration=iteration)
        except NeedsHost:
            declared = tuple(map(_declared, self.graph.outputs))
        if all(map(_has_fixed_shape, self.graph.outputs)):
            return declared
        try:
            results = self(*arguments, iteration=iteration)
        except SardonyxError:  # The body need not accept these values, which are only examples.
            return declared
        return tuple(
            Spec(value.shape, value.dtype) if isinstance(value, (Static, Device)) else spec
            for value, spec in zip(results, declared, strict=True)
        )

    def shapes(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        """Like `specs`; raises `NeedsHost` if the body cannot run on the device as a whole."""
        number = None if iteration is None else self.example(as_value(iteration))
        return self.recorded([self.example(as_value(a)) for a in arguments], number).specs

    def recorded(self, arguments: Sequence[Any], iteration: Any) -> Block:
        """Return the block for arguments like these, recorded at the first use."""
        key = block_key(self.xp, arguments, iteration)
        if key not in self.blocks:
            self.blocks[key] = self.recorder(arguments, iteration)
        return self.blocks[key]


def _has_fixed_shape(info: ValueInfo) -> bool:
    return info.shape is not None and all(isinstance(size, int) for size in info.shape)


def _declared(info: ValueInfo) -> Spec:
    """Return what the graph declares of an output; unknown sizes count as 0."""
    if info.dtype is None:
        return Spec((), np.dtype(object))
    return Spec(tuple(d if isinstance(d, int) else 0 for d in info.shape or ()), info.dtype)


def block_key(xp: Backend, arguments: Sequence[Any], iteration: Any) -> tuple[Any, ...]:
    """Return the key of a block: shapes, dtypes, and the values that are static."""
    return tuple(
        None if a is None else (digest(a) if xp.is_static(a) else None, *xp.spec(a))
        for a in (*arguments, iteration)
    )


def _fits(recorded: Any, key: Any, argument: Any) -> bool:
    """Whether a part of a block's key is that of an argument whose value may have been static."""
    if recorded == key:
        return True
    if None in (recorded, key) or recorded[1:] != key[1:] or not isinstance(argument, np.ndarray):
        return False
    return bool(recorded[0] == digest(argument))


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class Body:
    """A subgraph in the form that an op gets when it runs: a function of arrays."""

    blocks: Mapping[Any, Block]
    outputs: int
    xp: Backend
    # Returns the array of a register that the blocks capture.
    lookup: Callable[[int], Any]
    # Records missing blocks; None after the recording.
    subgraph: Subgraph | None

    def __call__(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        key = self._key(arguments, iteration)
        parts = zip(key, (*arguments, iteration), strict=True)
        arrays = [a for part, a in parts if part is not None and part[0] is None]
        return self.blocks[key].run(self.xp, self.lookup, arrays)

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        return self.blocks[self._key(arguments, iteration)].specs

    def _key(self, arguments: Sequence[Any], iteration: Any) -> Any:
        """Return the key of the block for these arguments, which is recorded if need be."""
        key = block_key(self.xp, arguments, iteration)
        if self.subgraph is not None:
            self.subgraph.recorded(arguments, iteration)
        if key in self.blocks:
            return key
        # Another library does not see which of the arguments were static while tracing.
        parts = list(zip(key, (*arguments, iteration), strict=True))
        for other in self.blocks:
            if all(_fits(one, *part) for one, part in zip(other, parts, strict=True)):
                return other
        raise KeyError(key)

    def gradients(self, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
        """Return the derivatives of the first result's sum by the first `count` arrays.

        JAX computes them for libraries that have no derivatives.
        """
        if self.xp.differentiates:
            return self.xp.gradients(self, arrays, count)
        self.specs(*arrays)  # Records the body, which is then run on JAX.
        jax = find("jax").uncompiled()
        with jax.scope():
            moved = [jax.put(self.xp.fetch(array)) for array in arrays]
            gradients = jax.gradients(self._on(jax), moved, count)
            return tuple(self.xp.put(jax.fetch(gradient)) for gradient in gradients)

    def _on(self, xp: Backend) -> Body:
        """Return the same body on another backend."""
        captured = captures_of(self.blocks.values())
        moved = {r: xp.put(self.xp.fetch(self.lookup(r))) for r in captured}
        return replace(self, xp=xp, lookup=moved.__getitem__, subgraph=None)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class BodyOfShapes:
    """A subgraph as a function of arrays without data: it is recorded, and not run."""

    subgraph: Subgraph

    def __call__(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        block = self._block(arguments, iteration)
        unknown = (a for a in (*arguments, iteration) if isinstance(a, ShapeArray))
        passed = dict(zip(block.parameters, unknown, strict=True))
        return tuple(
            (passed[result] if result in passed else shape_array(*spec))
            if isinstance(result, int)
            else result.value
            for result, spec in zip(block.results, block.specs, strict=True)
        )

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Spec, ...]:
        return self._block(arguments, iteration).specs

    def _block(self, arguments: Sequence[Any], iteration: Any) -> Block:
        examples = [Spec(a.shape, a.dtype) if isinstance(a, ShapeArray) else a for a in arguments]
        number = None if iteration is None else Spec(iteration.shape, iteration.dtype)
        return self.subgraph.recorded(examples, number)


@dataclass(eq=False, repr=False, slots=True)
class BodyCall:
    """An op that calls subgraphs. Its own arrays come first, then those that subgraphs capture."""

    call: OpCall
    # Number of the op's own arrays.
    own: int
    blocks_of: Mapping[str, Mapping[Any, Block]]
    # While recording: the subgraphs, and a function from registers that they capture to arrays.
    bodies: Mapping[str, Subgraph]
    stand_in: Callable[[int], Any] | None
    outputs: Mapping[str, int]

    key: ClassVar[None] = None
    is_unsized: ClassVar[bool] = False
    is_view: ClassVar[bool] = False

    @classmethod
    def of(cls, call: OpCall, own: int, stand_in: Callable[[int], Any]) -> BodyCall:
        """Prepare a call whose attributes include subgraphs."""
        bodies = {name: b for name, b in call.attributes.items() if isinstance(b, Subgraph)}
        others = {name: value for name, value in call.attributes.items() if name not in bodies}
        blocks = {name: body.blocks for name, body in bodies.items()}
        outputs = {name: body.outputs for name, body in bodies.items()}
        return cls(replace(call, attributes=others), own, blocks, bodies, stand_in, outputs)

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        captured = dict(zip(captures_of(self.blocks), arrays[self.own :], strict=False))
        lookup = self.stand_in or captured.__getitem__
        bodies = {
            name: Body(blocks, self.outputs[name], xp, lookup, self.bodies.get(name))
            for name, blocks in self.blocks_of.items()
        }
        return self._with(bodies)(xp, arrays[: self.own])

    def without_run(self) -> OpCall:
        """Return the call for arrays without data, which records the subgraphs."""
        return self._with({name: BodyOfShapes(body) for name, body in self.bodies.items()})

    def _with(self, bodies: Mapping[str, Any]) -> OpCall:
        return replace(self.call, attributes={**self.call.attributes, **bodies})

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for blocks in self.blocks_of.values() for block in blocks.values())

    def settle(self) -> None:
        """Drop the subgraphs after they were recorded."""
        self.bodies, self.stand_in = {}, None
