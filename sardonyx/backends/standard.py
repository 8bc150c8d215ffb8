"""The functions of the array API standard (2024.12) that an op may call, by family.

This is a list, not code: a backend takes each of these names from its library's namespace.
What is not listed here is not part of the language in which ops are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias


class Array(Protocol):
    """An array of the backend: what every library's array offers, and no more."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Array: ...
    def __neg__(self) -> Array: ...
    def __invert__(self) -> Array: ...
    def __add__(self, other: Operand, /) -> Array: ...
    def __radd__(self, other: Operand, /) -> Array: ...
    def __sub__(self, other: Operand, /) -> Array: ...
    def __rsub__(self, other: Operand, /) -> Array: ...
    def __mul__(self, other: Operand, /) -> Array: ...
    def __rmul__(self, other: Operand, /) -> Array: ...
    def __truediv__(self, other: Operand, /) -> Array: ...
    def __rtruediv__(self, other: Operand, /) -> Array: ...
    def __floordiv__(self, other: Operand, /) -> Array: ...
    def __mod__(self, other: Operand, /) -> Array: ...
    def __pow__(self, other: Operand, /) -> Array: ...
    def __and__(self, other: Operand, /) -> Array: ...
    def __or__(self, other: Operand, /) -> Array: ...
    def __xor__(self, other: Operand, /) -> Array: ...
    def __lshift__(self, other: Operand, /) -> Array: ...
    def __rshift__(self, other: Operand, /) -> Array: ...
    def __lt__(self, other: Operand, /) -> Array: ...
    def __le__(self, other: Operand, /) -> Array: ...
    def __gt__(self, other: Operand, /) -> Array: ...
    def __ge__(self, other: Operand, /) -> Array: ...


Operand: TypeAlias = Array | int | float | bool
Shape: TypeAlias = tuple[int, ...]

Unary: TypeAlias = Callable[[Array], Array]
Binary: TypeAlias = Callable[[Operand, Operand], Array]
WithOptions: TypeAlias = Callable[..., Array]


class Standard:
    """One annotation per function; `Backend` binds them to its library."""

    # Element by element.
    abs: Unary
    acos: Unary
    acosh: Unary
    asin: Unary
    asinh: Unary
    atan: Unary
    atanh: Unary
    bitwise_invert: Unary
    ceil: Unary
    conj: Unary
    cos: Unary
    cosh: Unary
    exp: Unary
    expm1: Unary
    floor: Unary
    imag: Unary
    isfinite: Unary
    isinf: Unary
    isnan: Unary
    log: Unary
    log1p: Unary
    log2: Unary
    logical_not: Unary
    negative: Unary
    real: Unary
    reciprocal: Unary
    round: Unary
    sign: Unary
    signbit: Unary
    sin: Unary
    sinh: Unary
    sqrt: Unary
    square: Unary
    tan: Unary
    tanh: Unary
    trunc: Unary

    # Two arrays, broadcast against each other.
    add: Binary
    atan2: Binary
    bitwise_and: Binary
    bitwise_left_shift: Binary
    bitwise_or: Binary
    bitwise_right_shift: Binary
    bitwise_xor: Binary
    copysign: Binary
    divide: Binary
    equal: Binary
    floor_divide: Binary
    greater: Binary
    greater_equal: Binary
    less: Binary
    less_equal: Binary
    logaddexp: Binary
    logical_and: Binary
    logical_or: Binary
    logical_xor: Binary
    maximum: Binary
    minimum: Binary
    multiply: Binary
    nextafter: Binary
    not_equal: Binary
    pow: Binary
    remainder: Binary
    subtract: Binary

    # Choosing and searching.
    argmax: WithOptions
    argmin: WithOptions
    argsort: WithOptions
    nonzero: Callable[[Array], Sequence[Array]]
    searchsorted: WithOptions
    sort: WithOptions
    take: WithOptions
    take_along_axis: WithOptions
    where: Callable[[Array, Operand, Operand], Array]

    # Reductions.
    all: WithOptions
    any: WithOptions
    cumulative_prod: WithOptions
    cumulative_sum: WithOptions
    max: WithOptions
    mean: WithOptions
    min: WithOptions
    prod: WithOptions
    sum: WithOptions

    # Products.
    matmul: Callable[[Array, Array], Array]
    matrix_transpose: Unary
    tensordot: WithOptions
    vecdot: WithOptions

    # Form.
    broadcast_arrays: Callable[..., Sequence[Array]]
    broadcast_to: Callable[[Array, Shape], Array]
    concat: WithOptions
    expand_dims: WithOptions
    flip: WithOptions
    moveaxis: WithOptions
    permute_dims: Callable[[Array, Shape], Array]
    repeat: WithOptions
    reshape: Callable[[Array, Shape], Array]
    roll: WithOptions
    squeeze: WithOptions
    stack: WithOptions
    tile: WithOptions
    tril: WithOptions
    triu: WithOptions
    unstack: Callable[..., Sequence[Array]]

    # Creation and conversion. These accept NumPy dtypes.
    arange: WithOptions
    asarray: WithOptions
    astype: Callable[[Array, Any], Array]
    empty: WithOptions
    eye: WithOptions
    full: WithOptions
    full_like: WithOptions
    linspace: WithOptions
    ones: WithOptions
    ones_like: WithOptions
    zeros: WithOptions
    zeros_like: WithOptions
    isdtype: Callable[[Any, Any], bool]
    result_type: Callable[..., Any]
