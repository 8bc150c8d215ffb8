"""What a program needs of weights and constants, made once and not at each call.

Steps that depend on weights alone are taken out of the program, so that scaling, transposing or
packing a weight costs nothing at a call; and small arrays are passed together, since each argument
of a compiled function costs time. Weights can still be replaced: what was made of them is made
anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.loading.custom_ops import Own
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Frame, Segment, Step, key_of, without_dead_steps
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Weights, WeightStore
from sardonyx.ops.definition import OnBackend
from sardonyx.ops.fused_products import packed, packed_product

# Fewer small arrays than this are passed one by one.
FEWEST_PACKED = 4
# What is packed begins at multiples of this many elements, as vector units like it.
ALIGNMENT = 16
# How many bytes a prepared value may have beyond those of what it is made of.
MOST_GROWTH = 2**16


@dataclass(frozen=True, slots=True)
class Pack:
    """Small arrays of one dtype, end to end in one buffer."""

    registers: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]

    @property
    def offsets(self) -> list[int]:
        offsets, end = [], 0
        for shape in self.shapes:
            offsets.append(end)
            end += math.ceil(math.prod(shape) / ALIGNMENT) * ALIGNMENT
        return offsets

    @property
    def spec(self) -> Spec:
        """What is in the buffer."""
        return Spec((self.offsets[-1] + math.prod(self.shapes[-1]),), self.dtype)

    def packed(self, arrays: Mapping[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The arrays of these registers as one."""
        buffer = np.zeros(*self.spec)
        for register, offset in zip(self.registers, self.offsets, strict=True):
            array = arrays[register]
            buffer[offset : offset + array.size] = array.ravel()
        return buffer

    def unpacked(self, xp: Backend, buffer: Any) -> Frame:
        """The arrays again, inside of a program."""
        return {
            register: xp.reshape(buffer[offset : offset + math.prod(shape)], shape)
            for register, shape, offset in zip(
                self.registers, self.shapes, self.offsets, strict=True
            )
        }


@dataclass(eq=False, slots=True, weakref_slot=True)
class Bound:
    """Arrays prepared from the weights, each set with the version of the weights it is for.

    A set is replaced as a whole, so that who reads it without the lock gets one version.
    """

    placed: tuple[int, list[Any]] | None = None
    # Prepared on the host, and not placed yet.
    ahead: tuple[int, Frame] | None = None
    lock: RLock = field(default_factory=RLock)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the newest version."""
        return self.placed[1] if self.placed else []


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """How a segment gets the weights and constants that it is bound to."""

    weights: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    # The constants on the device.
    placed: Mapping[int, Any] = field(default_factory=dict)
    # Steps on weights alone, that run on the host, and what they make.
    prepared: Segment | None = None
    specs: Mapping[int, Spec] = field(default_factory=dict)
    packs: tuple[Pack, ...] = ()
    # What is passed as it is: registers of weights, of constants, and of what was prepared.
    loose: tuple[int, ...] = ()
    _bound: list[Bound] = field(default_factory=list)

    @classmethod
    def plain(
        cls,
        segment: Segment,
        weights: Mapping[int, str],
        constants: Mapping[int, np.ndarray[Any, Any]],
        placed: Mapping[int, Any],
    ) -> Binding:
        """Each weight and constant as it is, and where it is."""
        return cls(
            weights={r: weights[r] for r in segment.fixed if r in weights},
            constants={r: constants[r] for r in segment.fixed if r in constants},
            placed={r: placed[r] for r in segment.fixed if r in placed},
            loose=segment.fixed,
        )

    @property
    def all_constants(self) -> set[int]:
        """The registers of constants, whether they are passed or something is made of them."""
        return {*self.constants, *self.placed}

    def arrays(self, weights: Weights, *, host: bool = False) -> list[Any]:
        """What to pass to the segment's function after the arrays that change with each call."""
        if host:
            return [weights.host(self.weights[register]) for register in self.loose]
        bound, version = self._bound_to(weights.store), weights.version
        placed = bound.placed
        if placed is not None and placed[0] == version:
            return placed[1]
        with bound.lock:
            placed = bound.placed
            if placed is not None and placed[0] == version:
                return placed[1]
            arrays = self._placed(self._taken(bound, weights), weights)
            if placed is None or placed[0] < version:
                bound.placed = version, arrays
            return arrays

    def prepare(self, weights: Weights) -> None:
        """Run ahead what depends on weights alone; a thread may do so while another compiles."""
        if self.prepared is None:
            return
        bound, version = self._bound_to(weights.store), weights.version
        with bound.lock:
            known = [each[0] for each in (bound.placed, bound.ahead) if each is not None]
            if version not in known:
                bound.ahead = version, self._prepared(self.prepared, weights)

    def _taken(self, bound: Bound, weights: Weights) -> Frame:
        """The prepared values, which nothing else holds any more."""
        ahead, bound.ahead = bound.ahead, None
        if self.prepared is None:
            return {}
        if ahead is not None and ahead[0] == weights.version:
            return ahead[1]
        return self._prepared(self.prepared, weights)

    def _prepared(self, steps: Segment, weights: Weights) -> Frame:
        # A backend that does not compile runs these steps itself: the first call of a model did
        # so too, and other libraries may round differently.
        backend = weights.backend
        xp = HOST if backend.compiled else backend
        # An operator of the caller's may use the backend's library, in the backend's types.
        with backend.scope(), xp.scope():
            frame: Frame = {r: self._input(r, weights, xp) for r in steps.fixed}
            for step, releases in zip(steps.steps, steps.releases, strict=True):
                step.run(xp, frame, releases)
                if xp is HOST:
                    frame.update({r: np.asarray(frame[r]) for r in step.results if r in frame})
                weights.drop_pages(self.weights[r] for r in step.reads if r in self.weights)
            return {r: frame[r] for r in steps.results}

    def _input(self, register: int, weights: Weights, xp: Backend) -> Any:
        if xp is HOST:
            return self._host(register, weights)
        if register in self.weights:
            return weights[self.weights[register]]
        return xp.put(self.constants[register])

    def stand_ins(self, weights: Weights) -> list[Any]:
        """What to compile for: like `arrays`, but of what is to be made only shape and dtype."""
        with weights.backend.scope():
            loose = [
                self.specs[register] if register in self.specs else self._loose(register, weights)
                for register in self.loose
            ]
        return loose + [pack.spec for pack in self.packs]

    def replaying(self, segment: Segment) -> Callable[..., list[Any]]:
        """The segment as a function of a backend, its inputs, and the arrays of `self.arrays`."""
        if not self.packs and self.loose == segment.fixed:
            return segment.replay
        return partial(self._replay, segment)

    def _replay(self, segment: Segment, xp: Backend, *arrays: Any) -> list[Any]:
        count = len(segment.inputs)
        frame: Frame = dict(zip(self.loose, arrays[count:], strict=False))
        for pack, buffer in zip(self.packs, arrays[count + len(self.loose) :], strict=True):
            frame.update(pack.unpacked(xp, buffer))
        return segment.replay(xp, *arrays[:count], *(frame[r] for r in segment.fixed))

    def form(self, segment: Segment) -> Any:
        """What tells apart two forms in which segments that are alike take their arguments."""
        places = {register: i for i, register in enumerate(segment.fixed)}
        packs = tuple((tuple(places[r] for r in p.registers), p.shapes) for p in self.packs)
        return tuple(places[register] for register in self.loose), packs

    def _bound_to(self, store: WeightStore) -> Bound:
        if not self._bound:
            self._bound.append(store.bound.setdefault(self._key(), Bound()))
        return self._bound[0]

    def _placed(self, frame: Frame, weights: Weights) -> list[Any]:
        backend = weights.backend
        with backend.scope():
            # Each goes from the host as soon as it is placed, so that few are held twice.
            loose = [
                weights.store.placed(frame.pop(register))
                if register in frame
                else self._loose(register, weights)
                for register in self.loose
            ]
            for pack in self.packs:
                for register in pack.registers:
                    if register not in frame:
                        frame[register] = self._host(register, weights)
            return loose + [backend.put(pack.packed(frame)) for pack in self.packs]

    def _host(self, register: int, weights: Weights) -> np.ndarray[Any, Any]:
        if register in self.weights:
            return weights.host(self.weights[register])
        return self.constants[register]

    def _loose(self, register: int, weights: Weights) -> Any:
        if register in self.weights:
            return weights[self.weights[register]]
        return self.placed[register]

    def _key(self) -> Any:
        """Equal for bindings to the same arrays, whatever the registers are called."""
        names: dict[int, Any] = {**self.weights}
        names.update((register, digest(value)) for register, value in self.constants.items())
        made: Any = None
        if self.prepared is not None:
            inputs = tuple(names[register] for register in self.prepared.fixed)
            made = key_of(self.prepared) or id(self), inputs
            names.update((register, i) for i, register in enumerate(self.prepared.results))
        packed = tuple(
            (tuple(names[r] for r in pack.registers), pack.shapes) for pack in self.packs
        )
        return tuple(names[register] for register in self.loose), packed, made


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    """What a recording is bound to, by register."""

    weights: Mapping[int, str]
    # Each on the host, and where programs take it from.
    constants: Mapping[int, np.ndarray[Any, Any]]
    placed: Mapping[int, Any]
    specs: Mapping[int, Spec]


def bind(
    steps: Sequence[Step], results: Sequence[int], given: Fixed, backend: Backend
) -> tuple[Segment, Binding]:
    """The segment of those steps that have to run at each call, and what the others make for it."""
    weights, constants, specs = given.weights, given.constants, given.specs
    ahead, rest = _divided(steps, results, weights, constants, specs)
    fixed = {*weights, *constants, *(r for step in ahead for r in step.results)}
    segment = Segment(rest, results, fixed)
    made = [r for r in segment.fixed if r not in weights and r not in constants]
    prepared = Segment(without_dead_steps(ahead, made), made, fixed) if made else None
    packs = _packs(segment.fixed, specs, backend.packs_up_to)
    packed = {register for pack in packs for register in pack.registers}
    loose = tuple(register for register in segment.fixed if register not in packed)
    used = {*segment.fixed, *(prepared.fixed if prepared else ())}
    return segment, Binding(
        {r: name for r, name in weights.items() if r in used},
        {r: value for r, value in constants.items() if r in used},
        {r: array for r, array in given.placed.items() if r in loose},
        prepared,
        {r: specs[r] for r in made},
        packs,
        loose,
    )


def _divided(
    steps: Sequence[Step],
    results: Sequence[int],
    weights: Container[int],
    constants: Container[int],
    specs: Mapping[int, Spec],
) -> tuple[list[Step], list[Step]]:
    """The steps on weights and constants alone, and those that have to be run at each call.

    A step that only looks at a weight in another shape remains: it costs nothing.
    """
    made: set[int] = set()
    ahead = []
    for step in steps:
        if _is_fixed(step, made, weights, constants):
            leaves = any(register in results for register in step.results)
            if not leaves and (_is_packing(step) or _growth(step, specs) <= MOST_GROWTH):
                ahead.append(step)
                made.update(step.results)
    gone = {step for step in ahead if not step.call.is_view}
    return ahead, without_dead_steps([step for step in steps if step not in gone], results)


def _is_fixed(step: Step, *known: Container[int]) -> bool:
    """Whether all that a step reads is bound to the program."""
    if step.blocks or step.call.is_unsized or not step.reads or _is_for_device(step):
        return False
    return all(any(register in each for each in known) for register in step.reads)


def _is_for_device(step: Step) -> bool:
    """Whether it calls a kernel of the device, or a function that the caller wrote for it.

    NumPy may lack that function, and such a kernel computes in the device's own types.
    """
    function = step.call.function if isinstance(step.call, OpCall) else None
    if isinstance(function, Own):
        function = function.function
    return function is packed_product or isinstance(function, OnBackend)


def _is_packing(step: Step) -> bool:
    """Whether it makes what a kernel takes in the place of a weight; that would be dear to redo."""
    return isinstance(step.call, OpCall) and step.call.function is packed


def _growth(step: Step, specs: Mapping[int, Spec]) -> int:
    made = sum(_size(spec) for spec in step.specs)
    return made - sum(_size(specs[register]) for register in set(step.reads))


def _size(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize


def _packs(registers: Sequence[int], specs: Mapping[int, Spec], up_to: int) -> tuple[Pack, ...]:
    small: dict[str, list[int]] = {}
    for register in registers:
        if _is_small_vector(specs[register], up_to):
            small.setdefault(specs[register].dtype.name, []).append(register)
    return tuple(
        Pack(tuple(each), tuple(specs[r].shape for r in each), specs[each[0]].dtype)
        for each in small.values()
        if len(each) >= FEWEST_PACKED
    )


def _is_small_vector(spec: Spec, up_to: int) -> bool:
    """A bias, a scale: what element-wise work reads in place. Matrices would be copied first."""
    if not 0 < _size(spec) <= up_to or max(spec.shape, default=1) != math.prod(spec.shape):
        return False
    return spec.dtype.kind in "fiub" or spec.dtype == bfloat16
