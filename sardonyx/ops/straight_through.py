"""Quantization with straight-through derivatives.

A value that is quantized and at once dequantized has the standard's result, but a derivative of one
where it lies within the bounds of the quantized dtype. The scale learns from the rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any

import ml_dtypes

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops import quantization
from sardonyx.ops.definition import DType, Op, Value, Walk
from sardonyx.ops.dtypes import FLOAT32


@dataclass(frozen=True, slots=True)
class Settings:
    """The attributes of a node that quantizes or dequantizes."""

    axis: int = 1
    block_size: int = 0
    output_dtype: DType | None = None
    precision: DType | None = None
    saturate: int = 1

    def quantized(self, xp: Backend, *inputs: Array) -> Array:
        return quantization.QuantizeLinear(xp, *inputs, **asdict(self))

    def restored(self, xp: Backend, *inputs: Array) -> Array:
        return quantization.DequantizeLinear(
            xp, *inputs, axis=self.axis, block_size=self.block_size, output_dtype=self.output_dtype
        )

    def spread(self, xp: Backend, value: Array, x: Array) -> Array:
        numbers = xp.astype(value, xp.dtype(FLOAT32))
        return quantization.spread(xp, numbers, x.shape, self.axis, self.block_size)


@dataclass(frozen=True, eq=False, slots=True)
class Quantized:
    """The inputs and settings that a value was quantized with."""

    inputs: tuple[Value, ...]
    settings: Settings


def QuantizeLinear(
    walk: Walk,
    x: Value,
    y_scale: Value,
    y_zero_point: Value = None,
    **attributes: Annotated[Any, quantization.QuantizeLinear],
) -> Value:
    inputs = _present(x, y_scale, y_zero_point)
    results = walk.apply(quantization.QuantizeLinear, *inputs, **attributes)
    walk.note(results[0], Quantized(inputs, Settings(**attributes)))
    return results


def DynamicQuantizeLinear(walk: Walk, x: Value) -> Value:
    results = walk.apply(quantization.DynamicQuantizeLinear, x)
    walk.note(results[0], Quantized((x, results[1], results[2]), Settings()))
    return results


def DequantizeLinear(
    walk: Walk,
    x: Value,
    x_scale: Value,
    x_zero_point: Value = None,
    **attributes: Annotated[Any, quantization.DequantizeLinear],
) -> Value:
    by = _present(x_scale, x_zero_point)
    source = walk.noted(x)
    if source is None:
        return walk.apply(quantization.DequantizeLinear, x, *by, **attributes)
    return walk.apply(
        _straight,
        *source.inputs,
        *by,
        count=len(source.inputs),
        quantizing=source.settings,
        restoring=Settings(**attributes),
    )


_FUNCTIONS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "": (QuantizeLinear, DynamicQuantizeLinear, DequantizeLinear),
    # Of the attributes its nodes have only the axis; all else is the same.
    "com.microsoft": (QuantizeLinear, DequantizeLinear),
}
STRAIGHT_THROUGH: Mapping[tuple[str, str], Op[Any]] = MappingProxyType(
    {
        (domain, function.__name__): Op(function, domain)
        for domain, functions in _FUNCTIONS.items()
        for function in functions
    }
)


def _present(*values: Value) -> tuple[Value, ...]:
    return tuple(value for value in values if value is not None)


def _straight(
    xp: Backend, *arrays: Array, count: int, quantizing: Settings, restoring: Settings
) -> Array:
    (x, *by), (scale, *zero) = arrays[:count], arrays[count:]
    quantized = quantizing.quantized(xp, x, *by)
    exact = restoring.restored(xp, quantized, scale, *zero)
    smooth = _smooth(xp, x, by, quantized, quantizing)
    if zero:
        smooth = smooth - xp.detached(restoring.spread(xp, zero[0], x))
    smooth = xp.astype(smooth * restoring.spread(xp, scale, x), exact.dtype)
    # The value is exactly that of `exact`, the derivative that of `smooth`.
    return xp.detached(exact) + (smooth - xp.detached(smooth))


def _smooth(xp: Backend, x: Array, by: list[Array], quantized: Array, settings: Settings) -> Array:
    """Return the quantized numbers as floats that follow `x` where it is within the bounds."""
    rounded = xp.detached(xp.astype(quantized, xp.dtype(FLOAT32)))
    exact = xp.astype(x, xp.dtype(FLOAT32)) / settings.spread(xp, by[0], x)
    if len(by) > 1:
        exact = exact + xp.detached(settings.spread(xp, by[1], x))
    low, high = _bounds(xp.numpy_dtype(quantized.dtype))
    is_within = xp.logical_and(exact >= low, exact <= high)
    return xp.where(is_within, exact + xp.detached(rounded - exact), rounded)


def _bounds(dtype: DType) -> tuple[float, float]:
    """Return the bounds between which numbers are rounded to this dtype without saturation."""
    if isdtype(dtype, "integral"):
        whole = ml_dtypes.iinfo(dtype)
        return float(whole.min) - 0.5, float(whole.max) + 0.5
    limits = ml_dtypes.finfo(dtype)
    return float(limits.min), float(limits.max)
