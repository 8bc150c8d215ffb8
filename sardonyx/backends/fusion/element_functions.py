"""Functions of each element, and casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.fusion.expressions import computed_dtype
from sardonyx.backends.fusion.narrow_types import NARROW, number_dtype
from sardonyx.backends.fusion.nodes import CARRIED, Elementwise, Node
from sardonyx.backends.fusion.recording import BOOL, Recording, blank
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.shape_backend import SHAPES


class ElementFunctions(Recording):
    """What kernels compute for each element by itself."""

    def put(self, value: Any) -> Any:
        return self.symbol(self.node(np.asarray(value)))

    def asarray(self, value: Any, *, dtype: Any = None, copy: bool | None = None) -> Any:
        if not isinstance(value, Symbol):
            return self.put(np.asarray(value, dtype))
        value = value if dtype is None else self.astype(value, dtype)
        return self._copied(value) if copy else value

    def _copied(self, x: Any) -> Any:
        """Return `x` in an array of its own, if it gets one: a result may be written to."""
        if x.dtype not in CARRIED:
            return self.opaque("asarray", x, copy=True)
        return self._computed("astype", x.blank, [x], x.dtype)

    def elementwise(self, name: str, *operands: Any, **options: Any) -> Any:
        """Record a function of each element, or the library's call if kernels lack it."""
        if any(_is_narrow(operand) for operand in operands):
            return self._of_numbers(name, operands, options)
        computed_in = None
        if not options and any(isinstance(operand, Symbol) for operand in operands):
            blanks = blank(operands)
            result = getattr(SHAPES, name)(*blanks)
            computed_in = computed_dtype(name, result.dtype, blanks)
        if computed_in is None:
            return self.opaque(name, *operands, **options)
        return self._computed(name, result, operands, computed_in)

    def _of_numbers(self, name: str, operands: Sequence[Any], options: Any) -> Any:
        """Record a function of the numbers that narrow operands stand for."""
        result = getattr(SHAPES, name)(*blank(operands), **options)
        wide = [
            self.astype(self.asarray(operand), number_dtype(operand.dtype))
            if _is_narrow(operand)
            else operand
            for operand in operands
        ]
        return self.astype(self.elementwise(name, *wide, **options), result.dtype)

    def _computed(
        self, name: str, result: Any, operands: Sequence[Any], computed_in: np.dtype[Any]
    ) -> Symbol:
        nodes = [
            operand.node if isinstance(operand, Symbol) else self._literal(operand, computed_in)
            for operand in operands
        ]
        return self._like(result, Elementwise, *nodes, function=name, computed_in=computed_in)

    def _literal(self, value: Any, dtype: np.dtype[Any]) -> Node:
        is_strong = isinstance(value, (np.ndarray, np.generic))
        return self.node(value if is_strong else np.asarray(value, dtype))

    def astype(self, x: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        result = SHAPES.astype(x.blank, dtype)
        is_wide = x.dtype.kind in "iu" and x.dtype.itemsize == 8
        if not {x.dtype, dtype} <= CARRIED or (is_wide and dtype.name == "bfloat16"):
            return self.opaque("astype", x, dtype)
        return self._computed("astype", result, [x], dtype)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        result = SHAPES.bitcast(x.blank, dtype)
        if not {x.dtype, dtype} <= CARRIED or BOOL in (x.dtype, dtype):
            return self.opaque("bitcast", x, dtype)
        return self._computed("bitcast", result, [x], x.dtype)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        values = blank((condition, x, y))
        if not isinstance(condition, Symbol) or condition.dtype != BOOL:
            return self.opaque("where", condition, x, y)
        result = SHAPES.where(*values)
        if result.dtype not in CARRIED:
            return self.opaque("where", condition, x, y)
        return self._computed("where", result, (condition, x, y), result.dtype)

    def erf(self, x: Any) -> Any:
        return self.elementwise("erf", x)

    def fmod(self, a: Any, b: Any) -> Any:
        return self.elementwise("fmod", a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        return self.elementwise("divide", a, b)

    def separate_product(self, a: Any, b: Any) -> Any:
        return self.elementwise("multiply", a, b)


def _is_narrow(operand: Any) -> bool:
    return getattr(operand, "dtype", None) in NARROW
