"""Small programs that XLA for CPUs runs in the thread that calls them.

XLA hands a program of 1,000 operations or more to another thread, which takes 20 to 30 us, and a
small convolutional network takes 50. It does not if the program was compiled with a callback into
Python. So small programs get one, in a branch that is never taken; XLA removes the branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

# Counted as XLA does, which counts the body of a loop once, but before it optimizes the program.
# XLA itself runs programs of fewer operations where they are called. More take over a millisecond,
# in which a caller that passes JAX's arrays may have something else to do.
FEWEST_OPERATIONS, MOST_OPERATIONS = 500, 2**26
# By its number NumPy tells a dtype of others, such as bfloat16, from its own.
FIRST_OF_USERS = 256
# Programs with more bytes of arguments are not counted, as counting takes some milliseconds.
MOST_BYTES = 2**24

Jit = Callable[[Callable[..., Any]], Any]


def lowered(jit: Jit, replay: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Lower a function for one CPU, so that a small one will run in the calling thread."""
    traced = jit(replay).trace(*arguments)
    plain = traced.lower()
    place = _place_of_plain(traced.jaxpr.out_avals)
    if place is None or not _is_small(plain, arguments):
        return plain
    with_branch = jit(wraps(replay)(_with_branch(jaxpr_as_fun(traced.jaxpr), place)))
    return _Inline(plain, with_branch.lower(*arguments))


class _Inline(NamedTuple):
    """A small program as it is, and with the branch."""

    plain: Any
    with_branch: Any

    def compile(self) -> Any:
        executable = self.with_branch.compile()
        try:
            # JAX calls programs with callbacks by a slow path, which this one does not need.
            executable._executable.unsafe_call.has_host_callbacks = False
        except AttributeError:  # JAX renamed it.
            return self.plain.compile()
        return executable


def _is_small(lowered: Any, arguments: Sequence[Any]) -> bool:
    size = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in arguments)
    if size > MOST_BYTES:
        return False
    operations: float = (lowered.cost_analysis() or {}).get("flops", 0)
    return FEWEST_OPERATIONS <= operations < MOST_OPERATIONS


def _place_of_plain(avals: Sequence[Any]) -> int | None:
    """Return the place of a result in a dtype of NumPy's own."""
    # `isbuiltin` would be false for a copy of float32, which is what unpickled arrays have.
    numbers = (getattr(aval.dtype, "num", FIRST_OF_USERS) for aval in avals)
    return next((i for i, number in enumerate(numbers) if number < FIRST_OF_USERS), None)


def _with_branch(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Return the function with a callback on which its result at `place` seems to depend."""

    def with_branch(*arrays: Any) -> list[Any]:
        results = list(function(*arrays))
        truth = jax.ShapeDtypeStruct((), np.dtype(bool))
        is_true = lax.cond(np.False_, lambda: jax.pure_callback(_never, truth), lambda: np.True_)
        results[place] = lax.select(
            lax.broadcast(is_true, results[place].shape), results[place], results[place]
        )
        return results

    return with_branch


def _never() -> np.bool_:
    raise AssertionError("the branch is never taken")
