"""Dimensions that exporters write as expressions of other sizes, such as `past + 1`.

Python's own parser is not for names out of a file: it recurses, and before 3.11.8 it fails where
two threads parse at once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

# Longer names are names, not expressions.
LONGEST = 256
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[^\W\d]\w*)|(?P<sign>[-+*()]))\s*")
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2}


@dataclass(frozen=True, slots=True)
class Expression:
    """Sums, differences and products of sizes and whole numbers, in postfix order."""

    # Numbers are constants; strings are names, or operators.
    postfix: tuple[int | str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of the sizes that it reads."""
        return frozenset(
            part for part in self.postfix if isinstance(part, str) and part not in _OPERATORS
        )

    def value(self, sizes: Mapping[str, int]) -> int | None:
        """Return the value for these sizes; None if one of them is missing."""
        stack: list[int] = []
        for part in self.postfix:
            if isinstance(part, int):
                stack.append(part)
            elif part in _OPERATORS:
                right = stack.pop()
                stack.append(_OPERATORS[part](stack.pop(), right))
            elif (size := sizes.get(part)) is not None:
                stack.append(size)
            else:
                return None
        return stack.pop()


def names_in(text: str) -> frozenset[str]:
    """Return the names of the sizes on which a dimension depends.

    >>> sorted(names_in("past + 1")), sorted(names_in("the batch"))
    (['past'], ['the batch'])
    """
    expression = parse(text)
    return frozenset((text,)) if expression is None else expression.names


@lru_cache(1024)
def parse(text: str) -> Expression | None:
    """Return the expression of a dimension's name; None if it is something else.

    >>> parse("2 * (past + 1)").value({"past": 4})
    10
    """
    if len(text) > LONGEST:
        return None
    postfix: list[int | str] = []
    waiting: list[str] = []
    wants_operand = True
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (token["sign"] in (None, "(")) != wants_operand:
            return None
        position = token.end()
        sign = token["sign"]
        if sign is None:
            postfix.append(int(token["number"]) if token["number"] else token["name"])
            wants_operand = False
        elif sign == "(":
            waiting.append(sign)
        else:
            lowest = _PRECEDENCE.get(sign, 1)
            while waiting and _PRECEDENCE[waiting[-1]] >= lowest:
                postfix.append(waiting.pop())
            if sign != ")":
                waiting.append(sign)
            elif not waiting or waiting.pop() != "(":
                return None
            wants_operand = sign != ")"
    if wants_operand or "(" in waiting:
        return None
    return Expression((*postfix, *reversed(waiting)))
