"""The calls that a library has kernels of its own for, while one of its segments is traced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue


class NativeCalls(Protocol):
    """Whether the library computes a call with its own kernels, if it is left to it."""

    def has_convolution(self, x: Spec, weight: Spec, **layout: Any) -> bool:
        """Answer for a convolution of an array that is padded already."""

    def has_convolution_and_more(
        self, x: Spec, weight: Spec, others: Sequence[Spec], epilogue: Epilogue, **layout: Any
    ) -> bool:
        """Answer for a convolution with an epilogue, whose weight is finite."""

    def has_attention(self, *arrays: Spec, scale: float) -> bool:
        """Answer for the attention of queries, keys, values and perhaps a bias."""

    def has_normalization(self, rows: Spec, *, has_bias: bool, is_centred: bool) -> bool:
        """Answer for rows that are scaled, and perhaps shifted."""


_calls: ContextVar[NativeCalls | None] = ContextVar("native calls", default=None)


@contextmanager
def native_calls(calls: NativeCalls) -> Iterator[None]:
    """Leave these calls to the library in whatever is traced within."""
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)


def current_calls() -> NativeCalls | None:
    return _calls.get()
