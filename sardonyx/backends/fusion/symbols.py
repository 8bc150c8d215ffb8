"""Arrays that stand for nodes: ops compute with them while a segment is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from sardonyx.backends.fusion.nodes import Node
from sardonyx.backends.shape_arrays import NoShapeRule, ShapeArray, shape_array
from sardonyx.backends.standard import Shape


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NoShapeRule


def _operator(name: str) -> Callable[..., Any]:
    def operate(symbol: Symbol, *others: Any) -> Any:
        return getattr(symbol._xp, name)(symbol, *others)

    return operate


def _operators(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a binary operator and its reflected form."""

    def reflected(symbol: Symbol, other: Any) -> Any:
        return getattr(symbol._xp, name)(other, symbol)

    return _operator(name), reflected


class Symbol:
    """An array without data, whose operators are methods of the tracing backend."""

    # NumPy's scalars and arrays leave their operators to this class.
    __array_ufunc__: ClassVar[None] = None
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as arrays have none

    def __init__(self, node: Node, xp: Any) -> None:
        self.node = node
        self._xp = xp

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.node.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> int:
        return self.node.size

    @property
    def itemsize(self) -> int:
        return self.node.dtype.itemsize

    @property
    def blank(self) -> ShapeArray:
        """An array of this shape and dtype, for shape inference."""
        return shape_array(self.shape, self.dtype)

    def __getitem__(self, key: Any) -> Symbol:
        symbol: Symbol = self._xp.item(self, key)
        return symbol

    __neg__ = _operator("negative")
    __invert__ = _operator("bitwise_invert")
    __abs__ = _operator("abs")
    __eq__ = _operator("equal")
    __ne__ = _operator("not_equal")
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")
    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("remainder")
    __pow__, __rpow__ = _operators("pow")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lshift__, __rlshift__ = _operators("bitwise_left_shift")
    __rshift__, __rrshift__ = _operators("bitwise_right_shift")

    # What reads elements, or writes them.
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __len__ = _refuse
    __setitem__ = __contains__ = __array__ = _refuse
