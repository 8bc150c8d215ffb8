"""A model with options for its calls: what `bind` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sardonyx.printable import printable


@dataclass(frozen=True, eq=False, slots=True)
class CallOptions:
    """How to run one call: the key to draw at random from, and the inputs to donate."""

    key: Any = None
    donated: tuple[str, ...] = ()


PLAIN = CallOptions()


class Bindable(Protocol):
    """A model that can be called with options."""

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel: ...

    def _called(self, options: CallOptions, /, *inputs: Any, **named_inputs: Any) -> Any: ...

    def _ran(
        self, options: CallOptions, output_names: Sequence[str] | None, feeds: Mapping[str, Any]
    ) -> list[Any]: ...


@dataclass(frozen=True, eq=False, repr=False)
class BoundModel:
    """A model with a key or donated inputs, as `Model.bind` returns it; call it like the model."""

    _model: Bindable
    _options: CallOptions

    def __call__(self, /, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model, as `Model.__call__` does."""
        return self._model._called(self._options, *inputs, **named_inputs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model on inputs by name, as `Model.run` does."""
        return self._model._ran(self._options, output_names, feeds)

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel:
        """The model with these options; those that are left out stay as they are."""
        options = self._model.bind(key=key, donate=donate)._options
        return BoundModel(
            self._model,
            CallOptions(
                self._options.key if options.key is None else options.key,
                options.donated or self._options.donated,
            ),
        )

    def __repr__(self) -> str:
        key = "" if self._options.key is None else ", with a key"
        donated = ", ".join(self._options.donated)
        return printable(f"<bound {self._model!r}{key}{donated and f', donates {donated}'}>")
