"""Inputs with the padded shape of a result, so that a result can be passed back as it is.

A decoder returns its cache one row longer than it took it. If the program takes the longer array
and cuts it, the next call can pass the padded result as it is, and nothing is copied in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.padding.axes import Layout, has_padding
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.steps import Step
from sardonyx.graph.values.kinds import Device, leaves


class WideInput(NamedTuple):
    """The register and the shape in which a program takes an input."""

    register: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corner:
    """The call that cuts an array to a smaller shape."""

    shape: tuple[int, ...]

    is_unsized: ClassVar[bool] = False
    is_view: ClassVar[bool] = False

    @property
    def key(self) -> Any:
        return self

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        (array,) = arrays
        return (array[tuple(map(slice, self.shape))],)


def with_wide_inputs(
    segments: Sequence[TracedSegment], inputs: Mapping[int, Layout], recorder: SegmentCollector
) -> tuple[list[TracedSegment], dict[int, WideInput]]:
    """Return the segments with cuts ahead of them, and the inputs that are cut."""
    segment, *others = segments
    if others:
        return list(segments), {}
    readers = {register: step for step in reversed(segment.steps) for register in step.reads}
    widened, cuts = {}, []
    for register, layout in inputs.items():
        spec = recorder.registers.specs[register]
        shape = _longer(spec, recorder) if has_padding(layout) else None
        if shape is None or register not in readers:
            continue
        wide = recorder.registers.new(Spec(shape, spec.dtype))
        widened[register] = WideInput(wide, shape)
        node = readers[register].node
        cuts.append(Step(node, Corner(spec.shape), (wide,), (register,), (spec,)))
    return [replace(segment, steps=[*cuts, *segment.steps])], widened


def _longer(spec: Spec, recorder: SegmentCollector) -> tuple[int, ...] | None:
    """Return the shape of a result that is such an array, longer along one axis."""
    for leaf in (leaf for output in recorder.outputs for leaf in leaves(output)):
        if not isinstance(leaf, Device) or leaf.dtype != spec.dtype:
            continue
        if len(leaf.shape) != len(spec.shape):
            continue
        pairs = [(a, b) for a, b in zip(spec.shape, leaf.shape, strict=True) if a != b]
        if len(pairs) == 1 and pairs[0][0] < pairs[0][1] <= 2 * pairs[0][0]:
            return leaf.shape
    return None
