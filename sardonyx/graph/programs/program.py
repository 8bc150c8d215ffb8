"""The program of a call: the kind of each value, and the segments that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.display.graph_view.picture import Picture
from sardonyx.display.graph_view.view import GraphView
from sardonyx.display.text import MOST_LINES, on_screen
from sardonyx.display.units import bytes_text
from sardonyx.graph.programs.listing import (
    MOST_STEPS,
    listing,
    page,
)
from sardonyx.graph.programs.register_names import named_segments
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.steps import Segment, content_text
from sardonyx.graph.tracing.tracer import Traced
from sardonyx.graph.values.kinds import Device, digest, leaves, spec_text
from sardonyx.graph.viewing.drawing import picture_of
from sardonyx.graph.viewing.facts import Facts, places_of
from sardonyx.printable import printable


class Program:
    """One path through a recording: the kind of each value, and the segments that run.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> program = model.trace(np.zeros((1, 8, 48), np.float32))
    >>> len(program.segments)
    1
    """

    def __init__(
        self, title: str, backend: Backend, traced: Traced, stages: Sequence[Stage]
    ) -> None:
        self.title = title
        self._source = traced.source
        self._key = traced.registers.key
        self.backend = backend
        self.stages = tuple(stages)
        # The shapes and dtypes of a call's arrays, and of those that the device returns.
        self.inputs = tuple(traced.registers.input_specs)
        leaf_values = [leaf for output in traced.outputs for leaf in leaves(output)]
        self.outputs = tuple(leaf.spec for leaf in leaf_values if isinstance(leaf, Device))
        self.names: Mapping[str, Named] = traced.names
        """Every value of the graph, in the order of tracing."""
        self.constants = _constants(traced, stages)
        """The static values that device steps use, by the first name of each."""

    def kind(self, name: str) -> str:
        """Return the kind of a value: "static", "device", "alias" or "host"."""
        return self.named(name).kind

    def named(self, name: str) -> Named:
        try:
            return self.names[name]
        except KeyError:
            raise KeyError(printable(f"the graph has no value named '{name}'")) from None

    @property
    def static(self) -> dict[str, np.ndarray[Any, Any]]:
        """The values known while tracing, by name. They cost nothing at a call."""
        return {n: v.static for n, v in self.names.items() if v.static is not None}

    @property
    def aliases(self) -> dict[str, str]:
        """For each alias, the name of the value whose buffer it shares."""
        return {n: v.source for n, v in self.names.items() if v.kind == "alias" and v.source}

    @property
    def segments(self) -> list[Segment]:
        """The segments that run at each call, in order."""
        return list(self._named_segments)

    @cached_property
    def _named_segments(self) -> list[Segment]:
        return named_segments(self.stages, self.names, self._key)

    @property
    def round_trips(self) -> int:
        """How often a call waits for the device: to read a value, or to run steps on the host."""
        reads = sum(bool(stage.reads) for stage in self.stages)
        return reads + sum(segment.host for segment in self.segments)

    @property
    def _summary(self) -> list[tuple[str, list[str]]]:
        """The kinds of value that a call does not compute on the device, with their entries."""
        spec = self.backend.spec
        weights = [name for stage in self.stages for name in stage.binding.weights.values()]
        return [
            ("static", [f"{name} = {content_text(v)}" for name, v in self.static.items()]),
            ("aliases", [f"{name} is {source}" for name, source in self.aliases.items()]),
            ("constants", [f"{n} {spec_text(spec(a))}" for n, a in self.constants.items()]),
            ("weights", weights),
            ("host", [name for name, value in self.names.items() if value.kind == "host"]),
        ]

    def view(self, *, profile: Mapping[str, Any] | None = None) -> GraphView:
        """An interactive picture of the program: nodes by kind and segment, shapes, weights.

        `profile` maps names of nodes to seconds, or to pairs of seconds and bytes.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> view = model.trace(np.zeros((1, 8, 48), np.float32)).view()
        >>> {node.kind for node in view.picture.boxes if node.operator == "MatMul"}
        {'device'}
        """
        return self._view({}, profile)

    def _view(
        self, weights: Mapping[str, np.ndarray[Any, Any]], profile: Mapping[str, Any] | None
    ) -> GraphView:
        """Return the view, with these values of initializers that were replaced."""

        def draw() -> Picture:
            segments = self.segments
            titles = [
                f"segment {i} on {'host' if segment.host else self.backend.name}"
                for i, segment in enumerate(segments)
            ]
            constants = frozenset(self.constants)
            facts = Facts(self.names, places_of(segments), titles, constants)
            picture = picture_of(self._source, self.title, facts, weights)
            return picture.with_profile(profile or {})

        return GraphView(draw)

    def __str__(self) -> str:
        return listing(self.title, self.backend.name, self._summary, self.segments, MOST_STEPS)

    def __repr__(self) -> str:
        title, name = self.title, self.backend.name
        return on_screen(listing(title, name, self._summary, self.segments, MOST_LINES))

    def _repr_html_(self) -> str:
        stages = [stage for stage in self.stages if stage.segment is not None]
        notes = [_costs_text(stage) for stage in stages]
        picture = self.view().embedded(len(self._source.graph.nodes))
        return page(self.title, self.backend.name, self._summary, self.segments, notes, picture)


def _costs_text(stage: Stage) -> str:
    """Return what the compiler reports on a segment, if it is compiled."""
    costs = stage.costs
    if costs is None:
        return ""
    now = costs()
    moved, temporaries = bytes_text(int(now.moved)), bytes_text(now.temporaries)
    return f"{now.operations:,.0f} operations, {moved} moved, {temporaries} of temporaries"


def _constants(traced: Traced, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the arrays that steps take for static values, by the first name of each value."""
    registers = traced.registers
    names: dict[int, str] = {}
    for name, named in traced.names.items():
        if named.static is not None:
            names.setdefault(id(named.static), name)
    used = sorted({register for stage in stages for register in stage.binding.constants})
    arrays = {id(registers.constants[r]): registers.placed[r] for r in used}
    for embedded in [e for stage in stages for step in stage.steps for e in step.embedded]:
        # A recording of another process has values of its own, equal to those of this trace.
        value = registers.embedded.get(digest(embedded.value), embedded).value
        arrays[id(value)] = value
    return {names.get(key, f"constant {i}"): a for i, (key, a) in enumerate(arrays.items())}
