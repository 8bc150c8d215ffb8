"""`OperatorFunction`: an operator of an opset as a Python function."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Signature
from typing import Any

from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, displayed, element, escaped
from sardonyx.functions import eager
from sardonyx.functions.binding import bind
from sardonyx.functions.documentation import document, summary
from sardonyx.functions.signatures import python_signature, signature_text
from sardonyx.graph.calls.results import results_type
from sardonyx.recording.active import BoundCall, active
from sardonyx.recording.eager_bodies import run_with_bodies
from sardonyx.recording.operators import Operator, operator_of
from sardonyx.recording.symbols import SymbolicArray, holds_symbols

# Maximum characters of a line of the standard's text in a notebook.
LONGEST_LINE = 2000


class OperatorFunction:
    """An operator at one opset: call it with arrays of any library, or with symbolic arrays.

    >>> import numpy as np, sardonyx
    >>> O = sardonyx.opset(20)
    >>> O.Add(np.float32([1, 2]), 1)
    array([2., 3.], dtype=float32)
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.__name__ = self.__qualname__ = operator.name
        self.__doc__ = document(operator)

    @property
    def __signature__(self) -> Signature:
        return python_signature(self._operator)

    def __call__(
        self, /, *inputs: Any, outputs: int | Sequence[str] | None = None, **named: Any
    ) -> Any:
        call = bind(self._operator, inputs, named, outputs)
        values = self._values(call)
        if len(values) == 1:
            return values[0]
        names = call.results or tuple(f"output{i}" for i in range(len(values)))
        return results_type(tuple(filter(None, names)))(*values)

    def _values(self, call: BoundCall) -> Sequence[Any]:
        recorder = active()
        if recorder is None and not holds_symbols(call.inputs):
            return run_with_bodies(call) if call.has_bodies else eager.run(call)
        recorder = recorder or SymbolicArray.recorder_of(call.inputs)
        return recorder.call(call)

    def __repr__(self) -> str:
        domain = f" of {self._operator.domain}" if self._operator.domain else ""
        return f"<{signature_text(self._operator)}, opset {self._operator.opset}{domain}>"

    def _repr_html_(self) -> str:
        lines = (escaped(line, LONGEST_LINE) for line in (self.__doc__ or "").splitlines())
        text = element("pre", Html("\n".join(lines)))
        title = code(signature_text(self._operator))
        return displayed(title, summary(self._operator), fold("the standard's text", text))

    def __reduce__(self) -> tuple[Any, ...]:
        operator = self._operator
        return _restored, (operator.name, operator.domain, operator.opset)


def _restored(name: str, domain: str, opset: int) -> OperatorFunction:
    return OperatorFunction(operator_of(name, domain, opset))
