"""Params as plain dicts: which of them to train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.errors import InvalidInput

# Names, or patterns of names, or a predicate of a name and its array.
Choice: TypeAlias = str | Iterable[str] | Callable[[str, Any], bool]


def split_params(
    params: Mapping[str, Any], trainable: Choice | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split params into those to train and the rest; `trained | rest` is all of them.

    `trainable` is `fn.trainable`, or other names, patterns of names, or a predicate of a name and
    its array. By default floats with at least one axis are trained, since exporters also write
    constants as single numbers. Only `fn.trainable` leaves out running means and variances.

    >>> import sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> trained, rest = sardonyx.split_params(params, fn.trainable)
    >>> (trained | rest).keys() == params.keys()
    True
    """
    is_chosen = is_trained_by_default if trainable is None else _predicate(trainable, params)
    trained = {name: array for name, array in params.items() if is_chosen(name, array)}
    return trained, {name: array for name, array in params.items() if name not in trained}


def is_trained_by_default(name: str, array: Any) -> bool:
    """Return whether the param holds floats and has at least one axis."""
    return len(array.shape) > 0 and isdtype(np.dtype(array.dtype), "real floating")


def _predicate(choice: Choice, params: Mapping[str, Any]) -> Callable[[str, Any], bool]:
    if callable(choice):
        return choice
    patterns = [choice] if isinstance(choice, str) else list(choice)
    exact = params.keys() & set(patterns)
    others = [pattern for pattern in patterns if pattern not in exact]
    for pattern in others:
        if not any(fnmatchcase(name, pattern) for name in params):
            raise InvalidInput(f"No param is called {pattern!r}; look at params.keys().")
    return lambda name, _: name in exact or any(fnmatchcase(name, each) for each in others)
