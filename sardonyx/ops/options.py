"""Checks of attributes that name one of several options."""

from __future__ import annotations

from collections.abc import Iterable


def require_one_of(name: str, value: object, options: Iterable[object]) -> None:
    """Raise a ValueError unless the attribute called `name` has one of the values `options`.

    >>> require_one_of("mode", "min", ("avg", "max"))
    Traceback (most recent call last):
    ValueError: mode is 'min', but must be avg or max
    """
    options = list(options)
    if value not in options:
        *others, last = map(str, options)
        raise ValueError(f"{name} is {value!r}, but must be {', '.join(others)} or {last}")
