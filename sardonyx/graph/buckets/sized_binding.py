"""Which of a program's weights and constants depend on sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay, Spec
from sardonyx.graph.buckets.merging import Merger, Part, Same
from sardonyx.graph.programs.prepared_groups import size_of
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Pack
from sardonyx.graph.tracing.steps import Frame, Segment, key_of, run_steps
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Constants, Weights

# What is prepared of weights for each size takes at most so many bytes, and so do these weights.
MOST_PREPARED, MOST_READ = 2**20, 2**26


@dataclass(frozen=True, eq=False, slots=True)
class SizedBinding:
    """How the stages of calls of several sizes get their weights and constants."""

    # What is the same for all sizes, with the shapes and dtypes of its arrays.
    shared: Binding
    specs: Sequence[Spec]
    # The constants that depend on sizes, by their registers, as the merger knows them.
    constants: Mapping[int, Part]
    # The numbers of the groups of steps that prepare something else of weights for each size.
    groups: tuple[int, ...]

    @classmethod
    def of(
        cls, merger: Merger, bindings: Sequence[Binding], weights: Weights
    ) -> SizedBinding | None:
        """Return that of stages with these bindings; None if much is prepared for each size."""
        first, constants = bindings[0], {}
        for register in first.constants:
            part = merger.merged([binding.constants[register] for binding in bindings])
            if not isinstance(part, Same):
                constants[register] = part
        groups = tuple(_sized_groups(bindings, constants))
        made = [spec for i in groups for step in first.prepared[i].steps for spec in step.specs]
        if sum(map(size_of, made)) > MOST_PREPARED:
            return None
        shared = _shared(first, constants, groups)
        specs = [Spec(tuple(array.shape), array.dtype) for array in shared.stand_ins(weights)]
        pairs = zip(shared.loose, specs, strict=False)
        read = [size_of(spec) for register, spec in pairs if register not in first.loose]
        return cls(shared, specs, constants, groups) if sum(read) <= MOST_READ else None

    def arguments(self, stage: Stage) -> list[Spec]:
        """Return what `replay` takes: constants for these sizes, inputs, and what is shared."""
        constants = [stage.binding.constants[register] for register in self.constants]
        own = [Spec(array.shape, array.dtype) for array in constants]
        return [*own, *stage.inputs, *self.specs]

    def replay(self, stage: Stage) -> Replay:
        """Return a stage as a function of a backend and of such arrays."""
        assert stage.segment is not None
        groups = [stage.binding.prepared[i] for i in self.groups]
        return partial(_replay, stage.segment, groups, tuple(self.constants), self.shared)


def packed_alike(
    segment: Segment | None, bindings: Sequence[Binding], constants: Constants
) -> list[Binding]:
    """Return bindings that pass the same registers in packs: what is small for all sizes."""
    packed = [{r for pack in binding.packs for r in pack.registers} for binding in bindings]
    common = set.intersection(*packed)
    if segment is None or all(registers == common for registers in packed):
        return list(bindings)
    loose = tuple([register for register in segment.fixed if register not in common])
    return [
        replace(
            binding,
            packs=tuple(_without(binding.packs, registers - common)),
            loose=loose,
            placed={
                r: constants.place(digest(value), value)
                for r, value in binding.constants.items()
                if r in loose
            },
            _bound=[],
        )
        for binding, registers in zip(bindings, packed, strict=True)
    ]


def _replay(
    segment: Segment,
    groups: Sequence[Segment],
    constants: Sequence[int],
    shared: Binding,
    *arguments: Any,
) -> list[Any]:
    names = [*constants, *segment.inputs, *shared.loose]
    xp: Backend = arguments[0]
    arrays = arguments[1:]
    frame: Frame = dict(zip(names, arrays, strict=False))
    for pack, buffer in zip(shared.packs, arrays[len(names) :], strict=True):
        frame.update(pack.unpacked(xp, buffer))
    for group in groups:
        run_steps(group.steps, xp, frame)
    return segment.replay(xp, *(frame[register] for register in segment.arguments))


def _sized_groups(bindings: Sequence[Binding], constants: Mapping[int, Part]) -> Iterator[int]:
    for i, group in enumerate(bindings[0].prepared):
        key = key_of(group)
        is_same = key is not None and all(key_of(b.prepared[i]) == key for b in bindings)
        if not is_same or not constants.keys().isdisjoint(group.fixed):
            yield i


def _shared(binding: Binding, constants: Mapping[int, Part], groups: Sequence[int]) -> Binding:
    """Return what binds the weights and constants that are the same for all sizes."""
    sized = [binding.prepared[i] for i in groups]
    varying = {register for group in sized for register in group.results} | constants.keys()
    read = {register for group in sized for register in group.fixed} - varying
    loose = [register for register in binding.loose if register not in varying]
    return replace(
        binding,
        prepared=tuple([g for i, g in enumerate(binding.prepared) if i not in groups]),
        specs={r: spec for r, spec in binding.specs.items() if r not in varying},
        packs=tuple(_without(binding.packs, varying)),
        loose=tuple(dict.fromkeys((*loose, *sorted(read)))),
        _bound=[],
    )


def _without(packs: Sequence[Pack], registers: set[int]) -> Iterator[Pack]:
    for pack in packs:
        pairs = zip(pack.registers, pack.shapes, strict=True)
        rest = [(register, shape) for register, shape in pairs if register not in registers]
        if rest:
            kept, shapes = zip(*rest, strict=True)
            yield replace(pack, registers=kept, shapes=shapes)
