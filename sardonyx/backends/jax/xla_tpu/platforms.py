"""Operations that have a form of their own on TPUs, and XLA's own elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_tpu import appending, convolution, division, elimination, products
from sardonyx.backends.jax.xla_tpu import fourier as fourier_form

WIDE_INTEGERS = ("int64", "uint64")

_DIVISIONS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "floor_divide": (division.floor_divide, jnp.floor_divide),
    "remainder": (division.remainder, jnp.remainder),
    "fmod": (division.fmod, jnp.fmod),
}


def are_wide_integers(*arrays: Any) -> bool:
    """Whether all are arrays of integers of 64 bits, in one type."""
    names = {x.dtype.name for x in arrays}
    return len(names) == 1 and names <= set(WIDE_INTEGERS)


def divided(name: str, a: Any, b: Any, *, is_simplest: bool) -> Any:
    """The quotient or remainder with a name of the array API's, or `fmod`."""
    general = _DIVISIONS[name][1]
    dtype = jnp.result_type(a, b)
    if is_simplest or dtype.name not in WIDE_INTEGERS:
        return general(a, b)
    return _divided(name, jnp.asarray(a, dtype), jnp.asarray(b, dtype))


@partial(jax.jit, static_argnums=0)
def _divided(name: str, a: Any, b: Any) -> Any:
    """Both forms, which are traced and lowered once for all operands of one shape."""
    on_tpu, general = _DIVISIONS[name]
    return _chosen(on_tpu, general, *jnp.broadcast_arrays(a, b))


def matmul(a: Any, b: Any) -> Any:
    """The product of integers of 64 bits."""
    return _chosen(products.matmul, jnp.matmul, a, b)


def tensordot(a: Any, b: Any, axes: Any) -> Any:
    """The sum of products over axes of integers of 64 bits."""
    forms = (partial(function, axes=axes) for function in (products.tensordot, jnp.tensordot))
    return _chosen(*forms, a, b)


def integer_convolution(
    x: Any, weight: Any, layout: ConvolutionLayout, general: Callable[[Any, Any], Any]
) -> Any:
    """The convolution of padded 8-bit integers in int32, as (N, groups, M / groups, places)."""
    return _chosen(partial(convolution.by_instructions, layout=layout), general, x, weight)


def concat(arrays: Any, axis: int) -> Any:
    """The arrays one after the other."""
    if not appending.is_appending(arrays, axis):
        return jnp.concat(arrays, axis=axis)
    forms = partial(appending.appended, axis=axis), lambda *parts: jnp.concat(parts, axis=axis)
    return _chosen(*forms, *arrays)


def det(x: Any) -> Any:
    """The determinants of square matrices."""
    # XLA has the formulas of the smallest ones.
    if x.dtype != jnp.float64 or x.shape[-1] <= 3:
        return jnp.linalg.det(x)
    return _chosen(elimination.det, jnp.linalg.det, x)


def fourier(
    general: Callable[..., Any], options: Mapping[str, Any], *parts: Any, inverse: bool
) -> Any:
    """The parts of a Fourier transform, of real parts and, if there are any, imaginary ones."""
    on_tpu = partial(fourier_form.transformed, inverse=inverse, **options)
    return _chosen(on_tpu, partial(general, inverse=inverse), *parts)


def _chosen(on_tpu: Callable[..., Any], general: Callable[..., Any], *arrays: Any) -> Any:
    """Both forms, of which the lowering for a platform takes one."""
    if not any(isinstance(x, jax.core.Tracer) for x in arrays) and not _are_on_tpu(*arrays):
        return general(*arrays)
    return lax.platform_dependent(*arrays, tpu=on_tpu, default=general)


def _are_on_tpu(*arrays: Any) -> bool:
    devices = (d for x in arrays if isinstance(x, jax.Array) for d in x.devices())
    return any(device.platform == "tpu" for device in devices)
