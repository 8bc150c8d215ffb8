"""`Opset`: the operators of an opset as functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, displayed
from sardonyx.display.tables import table
from sardonyx.functions.documentation import summary
from sardonyx.functions.function import OperatorFunction
from sardonyx.recording.operators import operator_names, operator_of

# The domains beside ONNX's own, by the attribute that has their operators.
DOMAINS = {
    "ml": "ai.onnx.ml",
    "training": "ai.onnx.preview.training",
    "preview": "ai.onnx.preview",
    "microsoft": "com.microsoft",
}
_SHOWN = 400


class Opset:
    """The operators of one domain at one opset, as functions: `O.Softmax(x, axis=-1)`.

    `sardonyx.opset` returns it. `dir(O)` lists the operators; those of other domains are in `O.ml`,
    `O.training`, `O.preview` and `O.microsoft`.

    >>> import sardonyx
    >>> O = sardonyx.opset(20)
    >>> O
    <opset 20 of ai.onnx: 192 operators; also ml 4, training 1, preview 1, microsoft 1>
    >>> O.ml
    <opset 4 of ai.onnx.ml: 18 operators>
    """

    def __init__(self, domain: str, version: int, others: Mapping[str, int]) -> None:
        self._domain = domain
        self._version = version
        self._others = {name: Opset(DOMAINS[name], number, {}) for name, number in others.items()}

    @property
    def version(self) -> int:
        """The number of the opset."""
        return self._version

    @property
    def domain(self) -> str:
        """The domain of the operators; ONNX's own is the empty string."""
        return self._domain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"an opset has no attribute '{name}'")
        if name in self._others:
            return self._others[name]
        function = OperatorFunction(operator_of(name, self._domain, self._version))
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return [*operator_names(self._domain, self._version), *self._others, "domain", "version"]

    def __repr__(self) -> str:
        count = len(operator_names(self._domain, self._version))
        others = ", ".join(f"{name} {each.version}" for name, each in self._others.items())
        also = f"; also {others}" if others else ""
        return f"<opset {self._version} of {self._title}: {count} operators{also}>"

    @property
    def _title(self) -> str:
        return self._domain or "ai.onnx"

    def _repr_html_(self) -> str:
        folded = [each._folded() for each in (self, *self._others.values())]
        return displayed(f"opset {self._version} of {self._title}", *folded)

    def _folded(self) -> Html:
        names = operator_names(self._domain, self._version)
        rows = [(code(name), self._summary(name)) for name in names]
        title = f"opset {self._version} of {self._title}"
        return fold(
            title, table(["operator", "text"], rows, most=_SHOWN), note=f"{len(names)} operators"
        )

    def _summary(self, name: str) -> str:
        return summary(operator_of(name, self._domain, self._version))

    def __reduce__(self) -> tuple[Any, ...]:
        others = {name: each.version for name, each in self._others.items()}
        return Opset, (self._domain, self._version, others)
