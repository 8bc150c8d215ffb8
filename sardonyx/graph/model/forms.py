"""The forms of one model: by the optional inputs that calls pass, and the values that they want."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from sardonyx.graph.model.entries import Entries
from sardonyx.graph.model.form import Form
from sardonyx.graph.model.named_values import computing, values_named, with_outputs
from sardonyx.logs import Log

_LOG = Log("tracing")
# Maximum number of forms for values other than the outputs; the least recently used ones go.
MOST_WITH_VALUES = 32


class Forms:
    """Keeps the forms of a model, which threads share."""

    def __init__(self, plain: Form) -> None:
        self._plain = plain
        self._lock = Lock()
        # By the optional inputs that they take.
        self._by_optional: dict[tuple[str, ...], Form] = {(): plain}
        # By what was asked for, and the optional inputs.
        self._with_values: OrderedDict[Any, tuple[tuple[str, ...], Form]] = OrderedDict()
        # The counts of the forms that were dropped.
        self._dropped = Entries(0)

    def overriding(self, form: Form, names: tuple[str, ...]) -> Form:
        """Return the plain form in which these initializers are inputs."""
        with self._lock:
            known = self._by_optional.get(names)
            if known is not None:
                return known
            new = self._by_optional[names] = form.overriding(names)
        _LOG.info("Calls that pass the optional inputs %s have their own programs.", _list(names))
        return new

    def capturing(
        self, patterns: tuple[str, ...], optional: tuple[str, ...]
    ) -> tuple[tuple[str, ...], Form]:
        """Return the names that are meant, and the form that has them as its last outputs."""

        def new() -> tuple[tuple[str, ...], Form]:
            source = self._plain.source
            names = tuple(dict.fromkeys(values_named(source, patterns)))
            outputs = [info.name for info in source.graph.outputs]
            extra = [name for name in names if name not in outputs]
            if not extra:
                return names, self.overriding(self._plain, optional)
            form = self._plain.with_source(with_outputs(source, [*outputs, *extra]))
            return names, form.overriding(optional) if optional else form

        return self._kept(("capture", patterns, optional), new)

    def computing(self, patterns: tuple[str, ...], optional: tuple[str, ...]) -> Form:
        """Return the form whose outputs are these values, and that computes no more."""

        def new() -> tuple[tuple[str, ...], Form]:
            source = self._plain.source
            names = values_named(source, patterns)
            form = self._plain.with_source(computing(source, names))
            left = {info.name for info in form.source.graph.optional_inputs}
            taken = tuple(name for name in optional if name in left)
            return names, form.overriding(taken) if taken else form

        return self._kept(("compute", patterns, optional), new)[1]

    def computing_once(self, names: tuple[str, ...]) -> Form:
        """Return a form whose outputs are these values, without keeping it."""
        return self._plain.with_source(computing(self._plain.source, names))

    def _kept(
        self, key: Any, new: Callable[[], tuple[tuple[str, ...], Form]]
    ) -> tuple[tuple[str, ...], Form]:
        with self._lock:
            found = self._with_values.get(key)
            if found is not None:
                self._with_values.move_to_end(key)
                return found
        created = new()
        with self._lock:
            found = self._with_values.setdefault(key, created)
            while len(self._with_values) > MOST_WITH_VALUES:
                self._drop_oldest()
        if found is created:
            _LOG.info("Calls that return the values %s have their own programs.", _list(found[0]))
        return found

    def _drop_oldest(self) -> None:
        _, (_, form) = self._with_values.popitem(last=False)
        if form in self._by_optional.values():
            return
        dropped, entries = self._dropped, form.entries
        dropped.calls += entries.calls
        dropped.missed += entries.missed
        dropped.traces += entries.traces
        dropped.evicted += entries.evicted + len(entries.by_key)

    def all(self) -> list[Form]:
        """Return all forms, each once."""
        with self._lock:
            forms = [*self._by_optional.values(), *(form for _, form in self._with_values.values())]
        return list(dict.fromkeys(forms))

    def entries(self) -> list[Entries]:
        """Return the entries of all forms, and the counts of those that were dropped."""
        return [*(form.entries for form in self.all()), self._dropped]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
