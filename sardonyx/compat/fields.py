"""The attributes of options: typed, with a default, and no others."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from sardonyx.compat.exceptions import RefusedCall, WrongType, require_text

# Maximum characters of the key and of the value of an entry.
LONGEST_KEY, LONGEST_VALUE = 1024, 4096


class Field:
    """One attribute of a class of options."""

    def __init__(self, default: Any, check: Callable[[str, Any], Any], doc: str) -> None:
        self.default = default
        self._check = check
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type[FieldValues], name: str) -> None:
        self.name = name

    def __get__(self, options: FieldValues | None, owner: type[FieldValues]) -> Any:
        return self if options is None else options._values.get(self.name, self.default)

    def __set__(self, options: FieldValues, value: Any) -> None:
        options._values[self.name] = self._check(self.name, value)


class FieldValues:
    """The values of fields, and entries of text by key."""

    __slots__ = ("_entries", "_values")

    _title: ClassVar[str] = "options"

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of all attributes."""
        return [name for name, each in vars(cls).items() if isinstance(each, Field)]

    def _add_entry(self, key: Any, value: Any) -> None:
        require_text(key=key, value=value)
        if not 0 < len(key) <= LONGEST_KEY or len(value) > LONGEST_VALUE:
            raise RefusedCall(
                f"The key of an entry of {self._title} has {len(key):,} characters and the value "
                f"{len(value):,}: pass 1 to {LONGEST_KEY:,} and at most {LONGEST_VALUE:,}."
            )
        self._entries[key] = value

    def _entry(self, key: Any) -> str:
        require_text(key=key)
        if key not in self._entries:
            raise RefusedCall(
                f"There is no entry {key!r:.200} in the {self._title}. Add it first, or ask for "
                f"one of {', '.join(sorted(self._entries)) or 'none'}."
            )
        return self._entries[key]


def whole_number(default: int, doc: str) -> Any:
    """Return a field for a whole number of 32 bits."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, (int, np.integer)) or not -(2**31) <= value < 2**31:
            raise WrongType(f"'{name}' is {value!r:.100}: pass a whole number of 32 bits.")
        return int(value)

    return Field(default, check, doc)


def switch(default: bool, doc: str) -> Any:
    """Return a field for True or False; 1, 0 and None count too."""

    def check(name: str, value: Any) -> bool:
        if not (value is None or isinstance(value, (bool, int, np.bool_))):
            raise WrongType(f"'{name}' is {value!r:.100}: pass True or False.")
        return bool(value)

    return Field(default, check, doc)


def text(default: str, doc: str) -> Any:
    """Return a field for a string."""

    def check(name: str, value: Any) -> str:
        require_text(**{name: value})
        return str(value)

    return Field(default, check, doc)


def choice(default: IntEnum, doc: str) -> Any:
    """Return a field for a member of an enumeration, here or in onnxruntime."""
    kind = type(default)

    def check(name: str, value: Any) -> IntEnum:
        members = kind.__members__
        if not isinstance(value, kind) and getattr(value, "name", None) not in members:
            raise WrongType(
                f"'{name}' is {value!r:.100}: pass a member of {kind.__name__}, such as "
                f"{kind.__name__}.{default.name}."
            )
        return members[value.name]

    return Field(default, check, doc)
