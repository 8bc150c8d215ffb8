"""Fourier transforms whose derivatives need nothing of JAX's 64-bit mode.

A caller's grad may see, without that mode, a program that was traced with it, and JAX's own rules
then lose the type of complex128.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax


def transformed(
    form: Callable[..., Any], size: int, inverse: bool, parts: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Return `form(*parts, inverse=inverse)`, a transform of this size, in its parts."""
    dtypes = tuple(part.dtype for part in parts)
    real, imaginary = _transformed(form, size, inverse, dtypes, *parts)
    return real, imaginary


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _transformed(form: Any, size: int, inverse: bool, dtypes: Any, *parts: Any) -> Any:
    return tuple(form(*parts, inverse=inverse))


def _forward(form: Any, size: int, inverse: bool, dtypes: Any, *parts: Any) -> Any:
    return _transformed(form, size, inverse, dtypes, *parts), None


def _transposed(
    form: Any, size: int, inverse: bool, dtypes: Any, _: None, slopes: Any
) -> tuple[Any, ...]:
    """The transform in the other direction, whose matrix is that of the derivatives."""
    with jax.enable_x64(True):
        found = transformed(form, size, not inverse, slopes)
        scaled = [part / size if inverse else part * size for part in found]
        return tuple(part.astype(d) for part, d in zip(scaled, dtypes, strict=False))


_transformed.defvjp(_forward, _transposed)
