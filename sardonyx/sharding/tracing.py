"""A tracer that constrains values to layouts where a node reads or computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.graph.ir import Node, Source
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.graph.tracing.scope import Scope
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Value
from sardonyx.sharding.layout import Layout

# A function of a backend, an array and a layout, which constrains the array to the layout.
Hold = Callable[..., Any]


class PinningTracer(Tracer):
    """A tracer that adds a step for each value with a required layout."""

    def __init__(
        self,
        source: Source,
        tape: Tape,
        *,
        strict: bool,
        pins: Mapping[Node, Mapping[str, Layout]],
        hold: Hold,
    ) -> None:
        super().__init__(source, tape, strict=strict)
        self._pins = pins
        self._hold = hold

    def results_of(self, node: Node, scope: Scope) -> Sequence[Value]:
        layouts = self._pins.get(node)
        if layouts is None:
            return super().results_of(node, scope)
        before = {name: scope[name] for name in node.inputs if name in layouts}
        for name, value in before.items():
            scope.bind(name, self._held(node, value, layouts[name]))
        results = super().results_of(node, scope)
        for name, value in before.items():
            scope.bind(name, value)
        named = zip(node.outputs, results, strict=False)
        return [self._held(node, v, layouts[n]) if n in layouts else v for n, v in named]

    def _held(self, node: Node, value: Value, layout: Layout) -> Value:
        if not isinstance(value, Device) or value.dtype == object:
            return value
        call = OpCall(self._hold, (HOLE,), {"layout": layout, "node": node}, ())
        return self.emit(node, call, [value])[0]
