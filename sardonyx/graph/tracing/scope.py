"""The values that names are bound to, at one place of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sardonyx.graph.ir import AttributeReference, Function, Graph
from sardonyx.graph.values.kinds import Value


class Scope:
    """The names of one graph or function body, and those of the graphs around it."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        *,
        outer: Scope | None = None,
        path: str = "",
        attributes: Mapping[str, Any] | None = None,
        missing: Callable[[str], Value] | None = None,
        depth: int = 0,
        place: str = "",
    ) -> None:
        self.opsets = opsets
        self.path = path
        self.depth = depth
        # Differs from the places of all other scopes of the model; made of the nodes' outputs.
        self.place = place
        # The values by name: of this scope, of the one around it, and so on.
        self._values: dict[str, Value] = {}
        self._levels: tuple[dict[str, Value], ...] = (self._values,)
        if outer is not None:
            self._levels += outer._levels
        self._attributes = attributes or {}
        self._missing = missing
        # The graph that is being walked.
        self.graph: Graph | Function | None = None

    def inner(self, path: str, place: str) -> Scope:
        """Return a scope for a subgraph, which sees all names of this one."""
        return Scope(
            self.opsets,
            outer=self,
            path=f"{self.path}{path}/",
            attributes=self._attributes,
            missing=self._missing,
            depth=self.depth + 1,
            place=place,
        )

    @property
    def is_of_the_model(self) -> bool:
        """Whether this is the model's own graph or a part of it, and not a function."""
        return self._missing is not None

    def bind(self, name: str, value: Value) -> None:
        self._values[name] = value

    def bound(self, name: str) -> Value:
        """Return the value bound to a name; None for unbound names, such as unread weights."""
        return next((values[name] for values in self._levels if name in values), None)

    def holds(self, name: str, value: Value) -> bool:
        """Whether the name is bound to this very value here."""
        return name in self._values and self._values[name] is value

    def __getitem__(self, name: str) -> Value:
        for values in self._levels:
            if name in values:
                return values[name]
        if self._missing is None:
            raise KeyError(name)
        value = self._missing(name)
        self._levels[-1][name] = value
        return value

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except KeyError:
            return False
        return True

    def release(self, names: tuple[str, ...]) -> None:
        """Unbind names that no node reads any more."""
        for name in names:
            self._values.pop(name, None)

    def resolve(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Replace references to the function's attributes; leave absent ones out."""
        resolved = {
            name: self._attributes.get(value.name)
            if isinstance(value, AttributeReference)
            else value
            for name, value in attributes.items()
        }
        return {name: value for name, value in resolved.items() if value is not None}
