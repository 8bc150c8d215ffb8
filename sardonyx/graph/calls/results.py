"""The outputs of a call: several are a tuple that can also be read by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.calls.array_interop import fetched
from sardonyx.graph.calls.nested_values import NESTED, as_dicts, map_arrays
from sardonyx.graph.calls.results_display import results_page, results_text
from sardonyx.graph.values.kinds import Static
from sardonyx.printable import printable


class Results(tuple[Any, ...]):
    """A model's outputs, in order and by name.

    JAX treats it as a named tuple, so a model can be called under `jit`.

    >>> out = results_type(("logits", "state"))(1.5, 2.5)
    >>> out["state"], out[0]
    (2.5, 1.5)
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *values: Any) -> Results:
        return super().__new__(cls, values)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._fields:
            names = ", ".join(self._fields)
            raise KeyError(printable(f"no output is named '{key}'; the outputs are {names}"))
        return super().__getitem__(self._fields.index(key))

    def keys(self) -> tuple[str, ...]:
        """Return the names of the outputs, so that `dict(results)` maps names to arrays."""
        return self._fields

    def __repr__(self) -> str:
        return results_text(self._fields, self)

    def _repr_html_(self) -> str:
        return results_page(self._fields, self)

    def __reduce__(self) -> tuple[Callable[..., Results], tuple[Any, ...]]:
        return _restored, (self._fields, tuple(self))


@cache
def results_type(names: tuple[str, ...]) -> type[Results]:
    """Return the class for the results of a model with these outputs."""
    # One class per list of names: JAX compares tree structures by class.
    return type("Results", (Results,), {"__slots__": (), "_fields": names})


def on_host(output: Any, backend: Backend) -> Any:
    """Convert an output to NumPy arrays."""
    if type(output) is np.ndarray:
        return output
    if type(output) in NESTED:
        return as_dicts(map_arrays(partial(_array_on_host, backend), output))
    return _array_on_host(backend, output)


def _array_on_host(backend: Backend, array: Any) -> Any:
    if isinstance(array, Static):
        return array.value
    return fetched(array, backend) if backend.owns(array) else array


def fresh(output: Any) -> Any:
    """Return an output whose NumPy arrays are writable and share memory with nothing.

    Sequences and maps are new as well. Arrays of other libraries stay as they are.

    >>> weight = np.ones(2)
    >>> fresh(weight) is weight, fresh([weight.view()])[0].flags.owndata
    (False, True)
    """
    if isinstance(output, (np.ndarray, np.generic)):
        return np.array(output)
    if isinstance(output, list):
        return [fresh(one) for one in output]
    if isinstance(output, dict):
        return {key: fresh(value) for key, value in output.items()}
    return output


def _restored(names: tuple[str, ...], values: Sequence[Any]) -> Results:
    return results_type(names)(*values)
