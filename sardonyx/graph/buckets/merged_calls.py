"""Calls of NumPy that several sizes have in common, with variables for what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sardonyx.backends.written_out.notes import NotedCall, Place, Variable
from sardonyx.graph.buckets.merging import Built, Irregular, Items, Merger, Part, Same, slice_of


@dataclass(frozen=True, eq=False, slots=True)
class MergedCalls:
    """Merges the notes of calls of several sizes."""

    merger: Merger
    # What the variables are.
    variables: list[Part] = field(default_factory=list)
    # By the parts' identities.
    _numbers: dict[int, Variable] = field(default_factory=dict)

    def merged(self, noted: Sequence[Sequence[NotedCall]]) -> list[NotedCall]:
        """Return the calls; raise `Irregular` if they differ in more than numbers."""
        if len(set(map(len, noted))) > 1:
            raise Irregular
        return [self._call(column) for column in zip(*noted, strict=True)]

    def _call(self, calls: Sequence[NotedCall]) -> NotedCall:
        first = calls[0]
        if any(_role(call) != _role(first) for call in calls):
            raise Irregular
        columns = zip(*((c.function, c.arguments, dict(c.options)) for c in calls), strict=True)
        function, arguments, options = (self._tree(self.merger.merged(c)) for c in columns)
        shape = first.shape if all(call.shape == first.shape for call in calls) else None
        return replace(first, function=function, arguments=arguments, options=options, shape=shape)

    def _tree(self, part: Part) -> Any:
        """Return a part with variables in the places of what differs."""
        if isinstance(part, Same):
            return part.value
        if isinstance(part, Built) and _keeps_parts(part):
            return part.build([self._tree(each) for each in part.parts])
        if id(part) not in self._numbers:
            self._numbers[id(part)] = Variable(len(self.variables))
            self.variables.append(part)
        return self._numbers[id(part)]


def _keeps_parts(part: Built) -> bool:
    return part.build in (tuple, list, slice_of) or isinstance(part.build, Items)


def _role(call: NotedCall) -> tuple[Place, Place | None, bool, bool]:
    return call.result, call.changes, call.demands, call.is_step
