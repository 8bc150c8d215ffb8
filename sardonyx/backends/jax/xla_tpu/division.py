"""Division of integers of 64 bits, which XLA for TPUs takes up to 40 seconds to compile.

Numbers that fit 32 bits, as sizes and indices do, are divided in 32 bits, for which TPUs have
instructions. All others are divided bit by bit, in a loop that is compiled in a fraction of a
second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

WIDE = ("int64", "uint64")

# A quotient rounded towards zero, and the remainder with the sign of the dividend.
Division: TypeAlias = tuple[Any, Any]


@jax.jit
def floor_divide(a: Any, b: Any) -> Any:
    """The quotient of two arrays of one dtype and shape, rounded down."""
    quotient, rest = divided(a, b)
    if jnp.issubdtype(a.dtype, jnp.unsignedinteger):
        return quotient
    across = (lax.sign(a) != lax.sign(b)) & (rest != 0)
    return quotient - across.astype(a.dtype)


@jax.jit
def remainder(a: Any, b: Any) -> Any:
    """The remainder with the sign of `b`; 0 where that is 0."""
    rest = fmod(a, b)
    if jnp.issubdtype(a.dtype, jnp.unsignedinteger):
        return rest
    across = (rest != 0) & ((rest < 0) != (b < 0))
    return jnp.where(across, rest + b, rest)


@jax.jit
def fmod(a: Any, b: Any) -> Any:
    """The remainder with the sign of `a`; 0 where `b` is 0, as JAX has it."""
    return jnp.where(b == 0, 0, divided(a, b)[1])


def divided(a: Any, b: Any) -> Division:
    """Quotient and remainder as XLA itself defines them, for zeros and overflow too.

    A number divided by zero has a quotient of ones in all bits, and is the rest itself.
    """
    is_signed = jnp.issubdtype(a.dtype, jnp.signedinteger)
    narrow: type[np.integer[Any]] = np.int32 if is_signed else np.uint32
    quotient, rest = lax.cond(
        _fit(a, narrow) & _fit(b, narrow),
        lambda a, b: _in(narrow, _as_xla, a, b),
        _signed if is_signed else _bit_by_bit,
        a,
        b,
    )
    return jnp.where(b == 0, ~jnp.zeros_like(a), quotient), rest


def _fit(x: Any, narrow: type[np.integer[Any]]) -> Any:
    """Whether all elements fit 32 bits; the least one does not, as its quotient by -1 would not."""
    limits = np.iinfo(narrow)
    return jnp.all((x <= limits.max) & (x > limits.min if limits.min else True))


def _in(dtype: Any, divide: Callable[[Any, Any], Division], a: Any, b: Any) -> Division:
    quotient, rest = divide(a.astype(dtype), b.astype(dtype))
    return quotient.astype(a.dtype), rest.astype(a.dtype)


def _as_xla(a: Any, b: Any) -> Division:
    return lax.div(a, b), lax.rem(a, b)


def _signed(a: Any, b: Any) -> Division:
    """By magnitudes; that of the least integer is right without a sign."""
    quotient, rest = _bit_by_bit(*(jnp.abs(x).astype(np.uint64) for x in (a, b)))
    quotient, rest = quotient.astype(a.dtype), rest.astype(a.dtype)
    quotient = jnp.where((a < 0) != (b < 0), -quotient, quotient)
    return quotient, jnp.where(a < 0, -rest, rest)


def _bit_by_bit(a: Any, b: Any) -> Division:
    """Long division in base 2."""
    one, last = np.uint64(1), np.uint64(63)

    def step(_: Any, state: Any) -> Any:
        left, quotient, rest = state
        overflows = rest >> last
        rest = (rest << one) | (left >> last)
        goes = (overflows == one) | (rest >= b)
        return left << one, (quotient << one) | goes.astype(np.uint64), rest - jnp.where(goes, b, 0)

    none = jnp.zeros_like(a)
    _, quotient, rest = lax.fori_loop(0, 64, step, (a, none, none))
    return quotient, rest
