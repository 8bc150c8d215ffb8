"""Expressions of the sizes of a call, and comparisons of these, as text."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# The sizes of a call, by the names of dimensions.
Sizes: TypeAlias = Mapping[str, int]

# Maximum length of an expression's text, which may come from a file.
MAX_TEXT = 4096

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _power(base: int, exponent: int) -> int:
    if not 0 <= exponent <= 8 or abs(base) > 2**32:
        raise ValueError(f"{base} to the power of {exponent} is not a size")
    power: int = base**exponent
    return power


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: _power,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
_SIGNS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


def names_in(text: str) -> list[str]:
    """Return the names of sizes in an expression, in order of appearance."""
    words = dict.fromkeys(_WORD.findall(text))
    return [word for word in words if word not in _FUNCTIONS]


def is_valid(rule: Callable[[str, Sizes], object], text: str) -> bool:
    """Return whether `rule`, which is `evaluated` or `holds`, accepts a text.

    >>> is_valid(evaluated, "2*n"), is_valid(evaluated, "2 n"), is_valid(holds, "n <= m")
    (True, False, True)
    """
    try:
        rule(text, dict.fromkeys(names_in(text), 7))
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return False
    return True


def evaluated(expression: Any, sizes: Sizes) -> int:
    """Return the value of an expression of sizes, or of its text.

    >>> evaluated("floordiv(n + 1, 2)", {"n": 8})
    4
    """
    return _value(_parsed(str(expression)), sizes)


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_TEXT:
        raise ValueError(f"an expression of sizes has {len(text):,} characters")
    return ast.parse(text, mode="eval").body


def holds(bound: str, sizes: Sizes) -> bool:
    """Return whether a comparison of two expressions is true for these sizes.

    >>> holds("2*n <= m", {"n": 3, "m": 6})
    True
    """
    match _parsed(bound):
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(left, sizes), _value(right, sizes))
    raise ValueError(f"'{bound}' is not a comparison of sizes")


def _value(tree: ast.expr, sizes: Sizes) -> int:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, sizes) for argument in arguments))
    raise ValueError(f"'{ast.unparse(tree)}' is not an expression of sizes")
