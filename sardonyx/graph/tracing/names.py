"""The kind of each named value of the graph: static, device, alias or host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.values.kinds import Device, Hosted, Static, Value


class Named(NamedTuple):
    """The kind of one named value, with its shape, register, source or static value."""

    kind: str
    spec: Spec | None
    register: int | None = None
    source: str | None = None
    static: np.ndarray[Any, Any] | None = None


class Names:
    """The names of one trace, with the values that they are bound to."""

    def __init__(self) -> None:
        self._names: dict[str, Named] = {}
        # By register: the outermost name of the value, with its depth; the name of its source.
        self._first_names: dict[int, tuple[str, int]] = {}
        self._views: dict[int, str] = {}

    def note(self, name: str, value: Value, depth: int = 0) -> None:
        """Record what a name is bound to. Of several names the outermost one is the value's own."""
        if isinstance(value, Static):
            self._names[name] = Named("static", Spec(value.shape, value.dtype), static=value.value)
        elif not isinstance(value, Device):
            self._names[name] = Named("host", None)
        else:
            first, outermost = self._first_names.setdefault(value.register, (name, depth))
            own = self._own_kind(value)
            if depth < outermost:
                self._first_names[value.register] = name, depth
                self._names[first] = own._replace(kind="alias", source=name)
            same = first == name or depth < outermost
            self._names[name] = own if same else own._replace(kind="alias", source=first)

    def note_view(self, value: Value, source: Device) -> None:
        """Record that a value is a view of `source`."""
        name, _ = self._first_names.get(source.register, ("", 0))
        if isinstance(value, Device) and value.register != source.register and name:
            self._views[value.register] = name

    def after(self, tape: Tape) -> dict[str, Named]:
        """Return the names after a trace, which knows what was read and what leaves segments."""
        return {name: self._final(named, tape) for name, named in self._names.items()}

    def _own_kind(self, value: Device) -> Named:
        if value.register in self._views:
            return Named("alias", value.spec, value.register, source=self._views[value.register])
        kind = "host" if isinstance(value, Hosted) else "device"
        return Named(kind, value.spec, value.register)

    def _final(self, named: Named, tape: Tape) -> Named:
        register, inputs_read = named.register, tape.registers.inputs_read
        if register in inputs_read:
            # The program holds for this value only, so the value counts as a constant.
            return named._replace(kind="static", static=inputs_read[register])
        copied = not tape.backend.reshapes_are_views and register in tape.left
        if copied and register is not None and named.source == self._views.get(register, ""):
            return named._replace(kind="device", source=None)
        return named
