"""The annotations of functions, evaluated."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any, get_type_hints


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return what the annotations of a function's parameters and of its result stand for.

    >>> annotations_of(annotations_of)["return"]
    collections.abc.Mapping[str, typing.Any]
    """
    plain = inspect.unwrap(function)
    is_own = isinstance(plain, FunctionType) and plain.__module__.startswith("sardonyx.")
    if not is_own:
        return get_type_hints(function, include_extras=True)
    # Python evaluates each text anew, and most ops have those of other ones.
    return {
        name: _evaluated(value, plain.__module__) if isinstance(value, str) else value
        for name, value in plain.__annotations__.items()
    }


@cache
def _evaluated(annotation: str, module: str) -> Any:
    return eval(annotation, vars(sys.modules[module]))
