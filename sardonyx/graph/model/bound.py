"""A model with options for its calls: what `bind` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sardonyx.graph.model.callable_model import CallableModel, CallOptions, RunCall
from sardonyx.printable import printable


class Bindable(Protocol):
    """A model that can be called with options."""

    _output_names: tuple[str, ...]

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel: ...

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall: ...


class BoundModel(CallableModel):
    """A model with a key or donated inputs, as `Model.bind` returns it; call it like the model."""

    def __init__(self, model: Bindable, options: CallOptions) -> None:
        super().__init__(model._output_names)
        self._model = model
        self._call_options = options

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel:
        """The model with these options; those that are left out stay as they are."""
        before, new = self._call_options, self._model.bind(key=key, donate=donate)._call_options
        new_key = before.key if new.key is None else new.key
        return BoundModel(self._model, CallOptions(new_key, new.donated or before.donated))

    def __repr__(self) -> str:
        key = "" if self._call_options.key is None else ", with a key"
        donated = ", ".join(self._call_options.donated)
        return printable(f"<bound {self._model!r}{key}{donated and f', donates {donated}'}>")

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundModel, (self._model, self._call_options)

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        return self._model._run_call_for(inputs, named)
