"""Which attention on CUDA is meant for cuDNN: all, none, or what is known to be good and pays."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import wraps
from typing import Any

from jax._src.cudnn.fused_attention_stablehlo import check_cudnn_version

from sardonyx.backends.compiled_folder import CompiledFolder
from sardonyx.errors import InvalidInput
from sardonyx.printable import printable

SWITCH = "SARDONYX_CUDNN_ATTENTION"
# How the word begins by which the identity of a backend says that it asks for cuDNN.
WORD = "cudnn="

# What cuDNN computes on all GPUs since Ampere; later ones have more.
LEAST_CAPABILITY = (8, 0)

# What follows is the choice by default: docs/gpu.md has the reasons.
CAPABILITIES = ((8, 0), (8, 6), (8, 9), (9, 0))
# As cuDNN counts: 9.15.1, and 10.
OLDEST, NEXT_MAJOR = 91501, 100000
HEAD_SIZES = (64, 128)
# Bytes of the scores in float32. Fewer stay in a GPU's cache between XLA's kernels.
LEAST_SCORES = 2**24


class Choice(Enum):
    """The values of the environment variable."""

    NEVER = "0"
    BY_DEFAULT = ""
    ALWAYS = "1"


_is_avoided: ContextVar[bool] = ContextVar("is_avoided", default=False)


def choice() -> Choice:
    """Return which attention of programs that are traced now is meant for cuDNN."""
    if _is_avoided.get():
        return Choice.NEVER
    value = os.environ.get(SWITCH, "")
    try:
        return Choice(value)
    except ValueError:
        raise InvalidInput(
            f"The environment variable {SWITCH} is {printable(value, 40)!r}: set it to 1 or 0, or "
            "unset it."
        ) from None


def is_for_device(capability: tuple[int, int] | None) -> bool:
    """Whether the choice includes GPUs of a compute capability; None is another device."""
    if capability is None:
        return False
    chosen = choice()
    if chosen is Choice.ALWAYS:
        return capability >= LEAST_CAPABILITY
    return chosen is Choice.BY_DEFAULT and capability in CAPABILITIES


def is_for_cache(cache: CompiledFolder | None) -> bool:
    """Whether the choice includes models with a cache of programs.

    A file of programs without cuDNN, as of those compiled where there is no device, is used as it
    is.
    """
    written_for = None if cache is None else cache.written_for
    return written_for is None or WORD in written_for or choice() is Choice.ALWAYS


def is_for_sizes(q: Any, k: Any) -> bool:
    """Whether the choice includes an attention of these sizes."""
    scores: int = 4 * math.prod(q.shape[:3]) * k.shape[2]
    pays = q.shape[3] in HEAD_SIZES and scores >= LEAST_SCORES
    return pays or choice() is Choice.ALWAYS


def version() -> int | None:
    """Return the version of the cuDNN that JAX finds, such as 91501 for 9.15.1."""
    try:
        found: int = check_cudnn_version()
    except RuntimeError:
        return None
    return found


def reason_against(found: int | None) -> str | None:
    """Return why the choice does not include a version of cuDNN; None if it does."""
    if choice() is Choice.ALWAYS:
        return None
    if found is None:
        return "attention without cuDNN, which JAX does not find here"
    if OLDEST <= found < NEXT_MAJOR:
        return None
    words = f"{found // 10000}.{found // 100 % 100}.{found % 100}"
    return f"attention without cuDNN, whose version {words} is not used by default"


def identity() -> str:
    """Return the word for programs that ask for cuDNN."""
    return f"{WORD}{choice().name.lower()}-{version()}"


def without_cudnn(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one that asks for no attention by cuDNN while it is traced."""

    @wraps(function)
    def plain(*arrays: Any) -> Any:
        with _avoided():
            return function(*arrays)

    return plain


@contextmanager
def _avoided() -> Iterator[None]:
    token = _is_avoided.set(True)
    try:
        yield
    finally:
        _is_avoided.reset(token)
