"""Tries cuDNN's attention out on a device, before programs use it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp

from sardonyx.backends.jax.accelerators import cudnn_attention, cudnn_choice
from sardonyx.backends.jax.accelerators.attention import attended
from sardonyx.backends.jax.accelerators.cudnn_attention import WHOLE_BLOCK
from sardonyx.backends.jax.accelerators.cudnn_choice import Choice
from sardonyx.backends.operations.scores import Mask, Reach, Scoring, Tile
from sardonyx.errors import SardonyxError
from sardonyx.printable import printable

# Two samples can have different lengths.
MOST_SAMPLES = 2
# A trial takes a second or more, so few lengths are tried: a power of two of whole blocks, and of
# the block after them nothing, the half or a part that stands for all others.
MOST_BLOCKS = 8
RESTS = (0, WHOLE_BLOCK // 2)
OTHER_REST = 37
# How far results near 1 may be apart: several times the distance of such numbers.
TOLERANCES = {"float16": 5e-3, "bfloat16": 4e-2}

Form = Callable[[Any, Any, Any, Scoring], Any]

_verdicts: dict[tuple[Any, ...], str | None] = {}
_lock = Lock()
_notes: ContextVar[list[str] | None] = ContextVar("_notes", default=None)


@dataclass(frozen=True)
class _Attention:
    """What decides which of its kernels cuDNN takes."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    dtype: str
    scale: float
    is_causal: bool
    has_lengths: bool


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect why attention of programs that are compiled meanwhile does not go to cuDNN."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def is_open() -> bool:
    """Whether the program that is traced now may use the cuDNN that JAX finds.

    By default not outside of `noted`: a caller's transformation traces the program then, may
    differentiate it, and compiles it itself.
    """
    if _notes.get() is None and cudnn_choice.choice() is not Choice.ALWAYS:
        return False
    return _is_fine(cudnn_choice.reason_against(cudnn_choice.version()))


def agrees(
    device: jax.Device, q: Any, k: Any, scoring: Scoring, form: Form = cudnn_attention.attended
) -> bool:
    """Whether cuDNN computes such an attention on the device, with the usual results."""
    reach: Any = scoring.reach
    attention = _Attention(
        _tried(q.shape),
        _tried(k.shape),
        q.dtype.name,
        scoring.scale,
        reach.is_causal,
        reach.lengths is not None,
    )
    with _lock:
        if (key := (device, attention, form)) not in _verdicts:
            _verdicts[key] = _reason_against(device, attention, form)
        return _is_fine(_verdicts[key])


def _is_fine(reason: str | None) -> bool:
    notes = _notes.get()
    if reason is not None and notes is not None:
        notes.append(reason)
    return reason is None


def _tried(shape: tuple[int, ...]) -> tuple[int, ...]:
    samples, heads, length, size = shape
    return min(samples, MOST_SAMPLES), heads, _tried_length(length), size


def _tried_length(length: int) -> int:
    blocks, rest = divmod(length, WHOLE_BLOCK)
    if blocks:
        blocks = min(1 << (blocks - 1).bit_length(), MOST_BLOCKS)
    return blocks * WHOLE_BLOCK + (rest if rest in RESTS else OTHER_REST)


def _reason_against(device: jax.Device, attention: _Attention, form: Form) -> str | None:
    with jax.default_device(device):
        try:
            # A program may be traced meanwhile, of which this is no part: it is another one.
            compiled = jax.jit(partial(_difference, attention, form)).lower().compile()
            difference = float(compiled())
        except Exception as error:  # Whatever cuDNN and XLA raise.
            if isinstance(error, SardonyxError) and cudnn_choice.choice() is Choice.ALWAYS:
                raise
            words = printable(f"{type(error).__name__}: {error}", 200)
            return f"attention without cuDNN, which failed when it was tried out ({words})"
    if difference <= TOLERANCES[attention.dtype]:
        return None
    return "attention without cuDNN, whose results differed when it was tried out"


def _difference(attention: _Attention, form: Form) -> Any:
    """Return the greatest difference of both forms, relative where numbers are greater than 1."""
    shapes = attention.queries, attention.keys, attention.keys
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, shape, jnp.float32).astype(attention.dtype)
        for key, shape in zip(keys, shapes, strict=True)
    )
    length = attention.keys[2]
    lengths: Any = jnp.asarray([length // 2 + 1, length][: attention.keys[0]], jnp.int32)
    reach = Reach(attention.is_causal, lengths if attention.has_lengths else None)
    scoring = Scoring(attention.scale, mask=partial(_mask, reach), reach=reach)
    found, right = (
        y.astype(jnp.float32)
        for y in (form(q, k, v, scoring), attended(q, k, v, scoring, "highest"))
    )
    difference = jnp.abs(found - right) / jnp.maximum(jnp.abs(right), 1)
    # A NaN is a difference, too.
    return jnp.max(jnp.where(jnp.isnan(difference), jnp.inf, difference))


def _mask(reach: Reach, tile: Tile) -> Mask:
    queries: Any = tile.queries
    keys: Any = tile.keys
    lengths: Any = reach.lengths
    allowed = keys <= queries if reach.is_causal else keys >= 0
    if lengths is not None:
        allowed = allowed & (keys < jnp.reshape(lengths, (-1, 1, 1, 1)))
    return Mask(None, allowed)
