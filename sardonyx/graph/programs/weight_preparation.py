"""Prepares weights and constants for a program, once and not at each call.

Steps that depend on weights alone are taken out of the program, so that it costs nothing at a call
to scale, transpose or pack a weight. Small arrays are passed in one buffer, because each argument
of a compiled function costs time. When a weight is replaced, it is prepared again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.backends.numpy import HOST
from sardonyx.graph.loading.custom_ops import Own
from sardonyx.graph.programs.prepared_groups import (
    GroupArrays,
    PreparedArrays,
    groups_of,
    size_of,
)
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Call, Frame, Segment, Step, key_of, without_dead_steps
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.mmap import drop_pages
from sardonyx.graph.values.params import Weights, WeightStore
from sardonyx.ops.fused_products import packed, packed_product, product_chain
from sardonyx.ops.microsoft.unpacking import UNPACKS
from sardonyx.ops.on_backend import OnBackend

# Minimum number of small arrays that are passed in one buffer; where a copy costs less than an
# argument, it is two.
FEWEST_PACKED = 4
# Packed arrays begin at multiples of this many elements, which suits vector units.
ALIGNMENT = 16
# Maximum bytes by which a prepared value may exceed its inputs.
MOST_GROWTH = 2**16


@dataclass(frozen=True, slots=True)
class Pack:
    """Small arrays of one dtype, one after the other in a buffer."""

    registers: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]

    @property
    def offsets(self) -> list[int]:
        sizes = [math.ceil(math.prod(shape) / ALIGNMENT) * ALIGNMENT for shape in self.shapes]
        return list(accumulate(sizes[:-1], initial=0))

    @property
    def spec(self) -> Spec:
        """The shape and dtype of the buffer."""
        return Spec((self.offsets[-1] + math.prod(self.shapes[-1]),), self.dtype)

    def packed(self, arrays: Mapping[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return the arrays of these registers in one buffer."""
        buffer = np.zeros(*self.spec)
        for register, offset in zip(self.registers, self.offsets, strict=True):
            array = arrays[register]
            buffer[offset : offset + array.size] = array.ravel()
        return buffer

    def unpacked(self, xp: Backend, buffer: Any) -> Frame:
        """Return the arrays in a buffer, inside of a program."""
        parts = zip(self.registers, self.shapes, self.offsets, strict=True)
        return {
            register: xp.reshape(buffer[offset : offset + math.prod(shape)], shape)
            for register, shape, offset in parts
        }


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """How a segment gets its weights and constants."""

    weights: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    # The constants on the device.
    placed: Mapping[int, Any] = field(default_factory=dict)
    # The steps that prepare weights on the host, and the shapes and dtypes of their results.
    prepared: tuple[Segment, ...] = ()
    specs: Mapping[int, Spec] = field(default_factory=dict)
    packs: tuple[Pack, ...] = ()
    # Registers of weights, constants and prepared weights that are passed one by one.
    loose: tuple[int, ...] = ()
    _bound: list[PreparedArrays] = field(default_factory=list)

    @classmethod
    def plain(cls, segment: Segment, registers: Registers) -> Binding:
        """Bind each weight and constant as it is, where it is."""
        fixed, weights, constants = segment.fixed, registers.weights, registers.constants
        return cls(
            weights={r: weights[r] for r in fixed if r in weights},
            constants={r: constants[r] for r in fixed if r in constants},
            placed={r: registers.placed[r] for r in fixed if r in constants},
            loose=fixed,
        )

    def arrays(self, weights: Weights, *, host: bool = False) -> list[Any]:
        """Return what the segment's function takes after the arrays that change with each call."""
        if host:
            return [weights.on_host(self.weights[register]) for register in self.loose]
        arrays = self._current(weights)
        self._free_inputs(weights)
        return arrays

    def _current(self, weights: Weights) -> list[Any]:
        """Return the arrays for this version of the weights, placed at its first use."""
        bound = self._bound_to(weights.store)
        version, arrays = bound.placed
        if version == weights.version:
            return arrays
        with bound.lock:
            version, arrays = bound.placed
            if version != weights.version:
                arrays = self._placed(bound, weights)
            if version < weights.version:
                bound.placed = weights.version, arrays
            return arrays

    def prepare(self, weights: Weights) -> None:
        """Run the steps on weights ahead; a thread may do so while another compiles."""
        if not self.prepared:
            return
        for group, arrays in zip(self.prepared, self._bound_to(weights.store).groups, strict=True):
            with arrays.lock:
                if weights.version not in (arrays.placed[0], arrays.ahead[0]):
                    arrays.ahead = weights.version, self._run(group, weights)

    def _results(self, group: Segment, arrays: GroupArrays, weights: Weights) -> list[Any]:
        """Return what a group prepares, on the device if it is passed as it is."""
        with arrays.lock:
            version, results = arrays.placed
            if version == weights.version:
                return results
            (ahead, results), arrays.ahead = arrays.ahead, (-1, [])
            if ahead != weights.version:
                results = self._run(group, weights)
            packed = self._packed
            # Each leaves the host as soon as it is placed, so that few are held twice.
            for i, register in enumerate(group.results):
                if register not in packed:
                    results[i] = weights.store.placed(results[i])
            if version < weights.version:
                arrays.placed = weights.version, results
            return results

    def _run(self, group: Segment, weights: Weights) -> list[Any]:
        # A backend that does not compile runs these steps itself. It did so while they were traced,
        # and other libraries can round differently.
        backend = weights.backend
        xp = HOST if backend.compiled else backend
        # A custom operator can use the backend's library, with the backend's dtypes.
        with backend.scope(), xp.scope(), backend.creating_shared():
            frame: Frame = {}
            for step, releases in zip(group.steps, group.releases, strict=True):
                # Each is read just before its first use, and freed after the last one.
                unread = [r for r in step.reads if r not in frame]
                frame.update({r: self._input(r, weights, xp) for r in unread})
                step.run(xp, frame)
                if xp is HOST:
                    frame.update({r: np.asarray(frame[r]) for r in step.results})
                    for register in step.reads:
                        drop_pages(frame[register])
                for register in releases:
                    del frame[register]
            return [frame[register] for register in group.results]

    def _free_inputs(self, weights: Weights) -> None:
        """Free the weights on the device of which only prepared forms are needed from now on."""
        if not self.prepared or weights.backend.compiled:
            return
        read = {register for group in self.prepared for register in group.fixed}
        for register in read.difference(self.loose) & self.weights.keys():
            weights.free_unread(self.weights[register])

    def _input(self, register: int, weights: Weights, xp: Backend) -> Any:
        if xp is HOST:
            return self._host(register, weights)
        if register in self.weights:
            return weights[self.weights[register]]
        return xp.put(self.constants[register])

    def stand_ins(self, weights: Weights) -> list[Any]:
        """Return `arrays` to compile for, with only shapes and dtypes of what is not placed yet."""
        loose = [self._stand_in(register, weights) for register in self.loose]
        return loose + [pack.spec for pack in self.packs]

    def _stand_in(self, register: int, weights: Weights) -> Any:
        if register in self.weights:
            return weights.stand_in(self.weights[register])
        return self.specs.get(register) or self.placed[register]

    def replaying(self, segment: Segment) -> Callable[..., list[Any]]:
        """Return the segment as a function of a backend, its inputs, and `arrays`."""
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
        """Return a key of how the segment takes its arguments: which of them in packs."""
        places = {register: i for i, register in enumerate(segment.fixed)}
        packs = tuple((tuple(places[r] for r in p.registers), p.shapes) for p in self.packs)
        return tuple(places[register] for register in self.loose), packs

    def _bound_to(self, store: WeightStore) -> PreparedArrays:
        if not self._bound:
            names = self._names()
            keys = [self._group_key(group, names) for group in self.prepared]
            groups = tuple(store.prepared.setdefault(key, GroupArrays()) for key in keys)
            results = (register for group in self.prepared for register in group.results)
            names.update((register, i) for i, register in enumerate(results))
            packs = tuple((tuple(names[r] for r in p.registers), p.shapes) for p in self.packs)
            key = tuple(names[register] for register in self.loose), packs, tuple(keys)
            self._bound.append(store.bound.setdefault(key, PreparedArrays(groups)))
        return self._bound[0]

    def _names(self) -> dict[int, Any]:
        """Return keys of weights and constants, equal for the same arrays in other registers."""
        digests = {register: digest(value) for register, value in self.constants.items()}
        return {**self.weights, **digests}

    def _group_key(self, group: Segment, names: Mapping[int, Any]) -> Any:
        """Return a key, equal for groups that do the same with the same arrays."""
        packed = self._packed
        inputs = tuple(names[register] for register in group.fixed)
        is_packed = tuple(register in packed for register in group.results)
        return key_of(group) or id(group), inputs, is_packed

    @property
    def _packed(self) -> set[int]:
        return {register for pack in self.packs for register in pack.registers}

    def _placed(self, bound: PreparedArrays, weights: Weights) -> list[Any]:
        backend = weights.backend
        with backend.scope():
            frame: Frame = {}
            for group, arrays in zip(self.prepared, bound.groups, strict=True):
                results = self._results(group, arrays, weights)
                frame.update(zip(group.results, results, strict=True))
            loose = [
                frame[register] if register in frame else self._loose(register, weights)
                for register in self.loose
            ]
            for register in (r for pack in self.packs for r in pack.registers):
                if register not in frame:
                    frame[register] = self._host(register, weights)
            return loose + [backend.place(pack.packed(frame)) for pack in self.packs]

    def _host(self, register: int, weights: Weights) -> np.ndarray[Any, Any]:
        if register in self.weights:
            return weights.content(self.weights[register])
        return self.constants[register]

    def _loose(self, register: int, weights: Weights) -> Any:
        if register in self.weights:
            return weights[self.weights[register]]
        return self.placed[register]


def bind(
    steps: Sequence[Step], results: Sequence[int], registers: Registers, backend: Backend
) -> tuple[Segment, Binding]:
    """Divide steps into the segment that runs at each call, and the preparation of its weights."""
    specs = registers.specs
    # Those of these steps: a long program has many segments, and each reads few of all weights.
    reads = sorted({register for step in steps for register in step.reads})
    weights = {r: registers.weights[r] for r in reads if r in registers.weights}
    constants = {r: registers.constants[r] for r in reads if r in registers.constants}
    ahead, rest = _divided(steps, results, {*weights, *constants}, specs)
    fixed = {*weights, *constants, *(r for step in ahead for r in step.results)}
    segment = Segment(rest, results, fixed)
    computed = [r for r in segment.fixed if r not in weights and r not in constants]
    prepared = groups_of(ahead, computed, fixed, specs)
    into_kernels = _read_by_kernels(rest)
    packable = [register for register in segment.fixed if register not in into_kernels]
    packs = _packs(packable, specs, backend)
    packed = {register for pack in packs for register in pack.registers}
    loose = tuple(register for register in segment.fixed if register not in packed)
    used = {*segment.fixed, *(register for group in prepared for register in group.fixed)}
    return segment, Binding(
        {r: name for r, name in weights.items() if r in used},
        {r: value for r, value in constants.items() if r in used},
        {r: registers.placed[r] for r in loose if r in registers.placed},
        prepared,
        {r: specs[r] for r in computed},
        packs,
        loose,
    )


def _divided(
    steps: Sequence[Step], results: Sequence[int], fixed: set[int], specs: Mapping[int, Spec]
) -> tuple[list[Step], list[Step]]:
    """Return the steps that run ahead of all calls, and those that run at each call.

    A step that only views a weight in another shape is in both lists: it costs nothing.
    """
    ahead, leaving = [], set(results)
    for step in steps:
        can_move = leaving.isdisjoint(step.results) and _can_run_ahead(step, fixed)
        if can_move and _fits(step, specs):
            ahead.append(step)
            fixed.update(step.results)
    moved = {step for step in ahead if not step.call.is_view}
    return ahead, without_dead_steps([step for step in steps if step not in moved], results)


def _can_run_ahead(step: Step, fixed: Container[int]) -> bool:
    """Whether all that a step reads is fixed, and a step like it can run on the host."""
    if step.blocks or step.call.is_unsized or not step.reads or _is_for_device(step):
        return False
    return all(register in fixed for register in step.reads)


def _is_for_device(step: Step) -> bool:
    """Whether it calls a kernel of the device, or a custom operator for one backend.

    NumPy may lack that function, and such a kernel computes in the device's own types.
    """
    function = step.call.function if isinstance(step.call, OpCall) else None
    if isinstance(function, Own):
        function = function.function
    return function in (packed_product, product_chain) or isinstance(function, OnBackend)


def _fits(step: Step, specs: Mapping[int, Spec]) -> bool:
    """Whether the results take little more memory than what the step reads.

    Packing a weight for a kernel, or unpacking one, may take more, since it is too slow to repeat
    at each call.
    """
    if isinstance(step.call, OpCall) and step.call.function in (packed, *UNPACKS):
        return True
    before = sum(size_of(specs[register]) for register in set(step.reads))
    return sum(map(size_of, step.specs)) <= before + MOST_GROWTH


def _read_by_kernels(steps: Sequence[Step]) -> set[int]:
    """Return the registers that kernels of another library read, such as oneDNN's.

    XLA compiles a function for each vector that it must cut out of a pack for them: in MobileNetV2
    for 52 biases, which took three quarters of the time to compile. It fuses the cut into loops of
    its own.
    """
    return {register for step in steps if _is_whole_kernel(step.call) for register in step.reads}


def _is_whole_kernel(call: Call) -> bool:
    """Whether a kernel computes all of a product, its epilogue included."""
    if not isinstance(call, OpCall) or call.function not in (packed_product, product_chain):
        return False
    return bool(call.attributes.get("epilogue", NOTHING) == NOTHING)


def _packs(
    registers: Sequence[int], specs: Mapping[int, Spec], backend: Backend
) -> tuple[Pack, ...]:
    fewest = 2 if backend.packs_matrices else FEWEST_PACKED
    small: dict[str, list[int]] = {}
    for register in registers:
        if _is_small(specs[register], backend):
            small.setdefault(specs[register].dtype.name, []).append(register)
    return tuple(
        Pack(tuple(each), tuple(specs[r].shape for r in each), specs[each[0]].dtype)
        for each in small.values()
        if len(each) >= fewest
    )


def _is_small(spec: Spec, backend: Backend) -> bool:
    """Whether an array is so small that it is passed in one buffer with others."""
    if not 0 < size_of(spec) <= backend.packs_up_to:
        return False
    is_vector = max(spec.shape, default=1) == math.prod(spec.shape)
    if not is_vector and not backend.packs_matrices:
        return False
    return spec.dtype.kind in "fiub" or spec.dtype == bfloat16
