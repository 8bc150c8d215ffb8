"""What names mean at one place of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sardonyx.graph.ir import AttributeReference, Function, Graph
from sardonyx.graph.values.kinds import Value


class Scope:
    """The names of one graph or function body, and the scope around it, if any."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        *,
        parent: Scope | None = None,
        path: str = "",
        attributes: Mapping[str, Any] | None = None,
        missing: Callable[[str], Value] | None = None,
        depth: int = 0,
        place: str = "",
    ) -> None:
        self.opsets = opsets
        self.path = path
        self.depth = depth
        # What tells this scope from all others of the model, by the values that nodes make.
        self.place = place
        self._parent = parent
        self._values: dict[str, Value] = {}
        self._attributes = attributes or {}
        self._missing = missing
        # What is being walked through.
        self.graph: Graph | Function | None = None

    def inner(self, path: str, place: str) -> Scope:
        """A scope for a subgraph, which sees all that this one sees."""
        return Scope(
            self.opsets,
            parent=self,
            path=f"{self.path}{path}/",
            attributes=self._attributes,
            depth=self.depth + 1,
            place=place,
        )

    @property
    def is_of_the_model(self) -> bool:
        """Whether it is the model's own graph or a part of it, and not a function."""
        return self._missing is not None or (
            self._parent is not None and self._parent.is_of_the_model
        )

    def bind(self, name: str, value: Value) -> None:
        self._values[name] = value

    def bound(self, name: str) -> Value:
        """What is bound to the name already; None where nothing is, as to weights not yet read."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope._parent
        return None

    def holds(self, name: str, value: Value) -> bool:
        """Whether that very value is bound to the name here, and not let go yet."""
        return name in self._values and self._values[name] is value

    def __getitem__(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            if scope._missing is not None:
                value = scope._missing(name)
                scope._values[name] = value
                return value
            scope = scope._parent
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except KeyError:
            return False
        return True

    def release(self, names: tuple[str, ...]) -> None:
        """Let go of values that no node reads any more."""
        for name in names:
            self._values.pop(name, None)

    def resolve(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """A node's attributes, references to the function's own replaced, absent ones left out."""
        resolved = {
            name: self._attributes.get(value.name)
            if isinstance(value, AttributeReference)
            else value
            for name, value in attributes.items()
        }
        return {name: value for name, value in resolved.items() if value is not None}
