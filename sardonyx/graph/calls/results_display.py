"""A call's results as a table: names, dtypes and shapes, and the first elements of each.

An array on a device is not fetched for it, but a few of its elements are. A tracer has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.display.markup import code, displayed
from sardonyx.display.tables import table
from sardonyx.display.text import MOST_LINES, aligned
from sardonyx.display.units import counted, more_text
from sardonyx.graph.values.kinds import spec_text
from sardonyx.printable import printable

_MOST_ELEMENTS = 6
_LONGEST_LOOK = 60


def results_text(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return the first results as lines of a screen."""
    most = MOST_LINES - 2
    rows = [(n, *_described(v)) for n, v in zip(names[:most], values[:most], strict=True)]
    rest = [f"  {more_text(len(names) - most)}"] if len(names) > most else []
    return "\n".join([f"Results of {counted(len(names), 'output')}", *aligned(rows), *rest])


def results_page(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return what a notebook shows of results."""
    described = ((n, *_described(v)) for n, v in zip(names, values, strict=True))
    rows = ((code(name), what, code(look)) for name, what, look in described)
    shown = table(("name", "type", "values"), rows, total=len(names), most=40)
    return displayed(f"Results of {counted(len(names), 'output')}", shown)


def _described(value: Any) -> tuple[str, str]:
    """Return a value's dtype and shape, and a look at its elements."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value):,}", _of_items(value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__, printable(repr(value), _LONGEST_LOOK)
    try:
        spec = spec_text(Spec(tuple(value.shape), value.dtype))
    except (TypeError, ValueError):
        # Random keys and sizes that are symbols are no arrays of numbers.
        spec = f"{value.dtype}{list(value.shape)}"
    return printable(spec, _LONGEST_LOOK), _look(value)


def _of_items(value: list[Any] | dict[Any, Any]) -> str:
    items = list(value.values() if isinstance(value, dict) else value)[:3]
    texts = [" ".join(_described(item)) for item in items]
    return printable("; ".join([*texts, *(["…"] if len(value) > 3 else [])]), _LONGEST_LOOK)


def _look(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__array__") and not hasattr(value, "__cuda_array_interface__"):
            return ""
        # Tracers of JAX have `__array__` too, which raises; only they have no buffer to delete.
        if _is_traced(value):
            return f"traced ({type(value).__name__})"
        if getattr(value, "is_deleted", bool)():
            return "deleted: the array was donated"
    if 0 in value.shape:
        return "no elements"
    try:
        first = value[(0,) * (len(value.shape) - 1)] if value.shape else value
        few = first[:_MOST_ELEMENTS] if value.shape else first
        elements = np.asarray(few.get() if hasattr(few, "get") else few)
    except Exception as error:
        # A display must not fail where an array cannot be read, as one of another process.
        return printable(f"not readable: {type(error).__name__}", _LONGEST_LOOK)
    texts = [_element(each) for each in elements.reshape(-1)]
    is_all = elements.size == _size(value.shape)
    return printable(" ".join([*texts, *([] if is_all else ["…"])]), _LONGEST_LOOK)


def _is_traced(value: Any) -> bool:
    """Whether an array has no data yet."""
    return hasattr(value, "aval") and any(each.__name__ == "Tracer" for each in type(value).__mro__)


def _element(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value)
    try:
        kind = value.dtype.kind
        if kind == "c":
            return f"{value:.4g}"
        # Narrow floats have no format of their own, or not with early versions of ml_dtypes.
        return f"{float(value):.4g}" if kind in "fV" else str(value)
    except (TypeError, AttributeError):
        return str(value)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
