"""Checks of arguments that are not arrays: switches, counts, fractions, choices, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput

# How exactly float32 is multiplied: all words of `precision=`, and the level that backends know.
PRECISIONS: Mapping[str, str] = {
    "highest": "highest",
    "float32": "highest",
    "high": "high",
    "bfloat16_3x": "high",
    "tensorfloat32": "tensorfloat32",
    "bfloat16": "bfloat16",
    "default": "default",
}

_REAL = (int, float, np.integer, np.floating)


def check_switches(**values: Any) -> None:
    """Require each value to be True or False, and refuse `strict="no"`.

    >>> check_switches(strict=True, jit=False)
    """
    for name, value in values.items():
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInput(f"'{name}' is {value!r}: pass True or False.")


def check_level(strict: Any) -> None:
    """Require True, False or None, the levels of strictness.

    >>> check_level(None)
    """
    if strict is not None:
        check_switches(strict=strict)


def check_count(value: Any, rule: str, most: int | None = None) -> None:
    """Require a whole number of at least 1; the error begins with the rule.

    >>> check_count(256, "A model keeps at least one signature")
    """
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < 1 or (most is not None and value > most):
        raise InvalidInput(f"{rule}, not {value!r}: pass such a whole number.")


def check_fraction(value: Any, what: str) -> None:
    """Require a number above 0 and at most 1.

    >>> check_fraction(0.5, "A fraction of memory")
    """
    if isinstance(value, bool) or not isinstance(value, _REAL) or not 0 < value <= 1:
        raise InvalidInput(f"{what} is above 0 and at most 1, not {value!r}: pass such a number.")


def check_choice(name: str, value: Any, choices: Sequence[str | None]) -> None:
    """Require one of the choices.

    >>> check_choice("precision", "high", ("highest", "high"))
    """
    if not (value is None or isinstance(value, str)) or value not in choices:
        shown = ", ".join(map(repr, choices))
        raise InvalidInput(f"There is no {name} {value!r}: pass one of {shown}.")


def precision_level(precision: Any) -> str:
    """Return the level of a word of `precision=`; other words are refused.

    >>> precision_level("float32")
    'highest'
    """
    check_choice("precision", precision, tuple(PRECISIONS))
    return PRECISIONS[precision]


def check_text(**values: Any) -> None:
    """Require each value to be a string.

    >>> check_text(op_type="Softmax", domain="")
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidInput(f"'{name}' is {value!r}: pass a string.")
