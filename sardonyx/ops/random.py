"""Random operators: the same numbers for the same seed; without a seed, new ones at each call."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import numpy as np

from sardonyx.backends import random
from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Ints, Key, OutputsRead, Shaped, op
from sardonyx.ops.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64
from sardonyx.ops.precision import at_least_float32, is_narrow

# -- tensors of numbers ---------------------------------------------------------------------------


def _uniform(
    xp: Backend,
    key: Key,
    shape: Ints,
    dtype: DType,
    *,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Array:
    """Draw from [low, high); `high` itself only if the dtype has no number below it."""
    if not low <= high or math.isinf(high - low):
        raise ValueError(
            f"low is {low} and high is {high}, but they must be in order, with a finite difference"
        )
    _check_drawn(xp, shape, dtype)
    drawn = random.uniform(xp, _seeded(xp, seed, key), shape, dtype)
    scaled = _affine(xp, drawn, high - low, low)
    below = np.nextafter(dtype.type(high), dtype.type(low))
    bounded = xp.minimum(scaled, xp.full((), float(below), dtype=scaled.dtype))
    return xp.astype(bounded, xp.dtype(dtype))


def _normal(
    xp: Backend,
    key: Key,
    shape: Ints,
    dtype: DType,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Array:
    _check_drawn(xp, shape, dtype)
    wide = dtype if dtype.itemsize >= 4 else FLOAT32
    drawn = random.normal(xp, _seeded(xp, seed, key), shape, wide)
    return xp.astype(_affine(xp, drawn, scale, mean), xp.dtype(dtype))


# The attributes of a distribution, and the seed.
Uniform: TypeAlias = Annotated[Any, _uniform]
Normal: TypeAlias = Annotated[Any, _normal]


@op
def RandomUniform(
    xp: Backend, *, shape: Ints, dtype: DType = FLOAT32, key: Key, **attributes: Uniform
) -> Array:
    return _uniform(xp, key, shape, dtype, **attributes)


@op
def RandomNormal(
    xp: Backend, *, shape: Ints, dtype: DType = FLOAT32, key: Key, **attributes: Normal
) -> Array:
    return _normal(xp, key, shape, dtype, **attributes)


@op
def RandomUniformLike(
    xp: Backend, input: Shaped, *, dtype: DType | None = None, key: Key, **attributes: Uniform
) -> Array:
    return _uniform(xp, key, input.shape, dtype or xp.numpy_dtype(input.dtype), **attributes)


@op
def RandomNormalLike(
    xp: Backend, input: Shaped, *, dtype: DType | None = None, key: Key, **attributes: Normal
) -> Array:
    return _normal(xp, key, input.shape, dtype or xp.numpy_dtype(input.dtype), **attributes)


def _seeded(xp: Backend, seed: float | None, key: Key) -> Array:
    """Return the key of the seed, or the call's key if the seed is missing or NaN."""
    if seed is None or math.isnan(seed):
        key_of_call: Array = key
        return key_of_call
    return xp.asarray(random.key_of(seed))


def _check_drawn(xp: Backend, shape: Ints, dtype: DType) -> None:
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative size")
    if not isdtype(dtype, "real floating"):
        raise ValueError(f"dtype is {dtype}, but must be a floating-point type")
    xp.allow(shape, dtype)


def _affine(xp: Backend, drawn: Array, scale: float, shift: float) -> Array:
    """Return `drawn * scale + shift`, in float32 or wider."""
    if is_narrow(xp, drawn.dtype):
        drawn = xp.astype(drawn, xp.dtype(FLOAT32))
    return drawn * float(scale) + float(shift)


# -- draws by probability -------------------------------------------------------------------------


@op
def Bernoulli(
    xp: Backend,
    input: Array,
    *,
    dtype: DType | None = None,
    seed: float | None = None,
    key: Key,
) -> Array:
    """Draw one with the probability in `input`, and zero otherwise."""
    xp.require(input, Within("input", 0, 1))
    wide = FLOAT64 if xp.numpy_dtype(input.dtype) == FLOAT64 else FLOAT32
    drawn = random.uniform(xp, _seeded(xp, seed, key), input.shape, wide)
    ones = drawn < xp.astype(input, drawn.dtype)
    return xp.astype(ones, input.dtype if dtype is None else xp.dtype(dtype))


@op
def Multinomial(
    xp: Backend,
    input: Array,
    *,
    dtype: DType = INT32,
    sample_size: int = 1,
    seed: float | None = None,
    key: Key,
) -> Array:
    """Draw classes by their logarithmic probabilities, which need not be normalised."""
    if input.ndim != 2 or not input.shape[1]:
        raise ValueError(
            f"input has shape {input.shape}, but must be [batch, classes] with at least one class"
        )
    if sample_size < 0:
        raise ValueError(f"sample_size is {sample_size}, but must not be negative")
    if dtype not in (INT32, INT64):
        raise ValueError(f"dtype is {dtype}, but must be int32 or int64")
    bounds = xp.cumulative_sum(_shares(xp, input), axis=1)
    drawn = random.uniform(xp, _seeded(xp, seed, key), (input.shape[0], sample_size), FLOAT64)
    points = xp.astype(drawn * xp.astype(bounds[:, -1:], drawn.dtype), bounds.dtype)
    return xp.astype(_counts_up_to(xp, bounds, points), xp.dtype(dtype))


def _shares(xp: Backend, logarithms: Array) -> Array:
    """Return integers proportional to each class's probability, which sum to less than 2**52.

    Integer sums are exact, so that a class of probability zero is never drawn.
    """
    x = xp.astype(logarithms, xp.dtype(FLOAT64))
    top = xp.max(x, axis=1, keepdims=True)
    # The maximum of a row, or all of it, may be infinite.
    odds = xp.where(xp.equal(x, top), xp.ones_like(x), xp.exp(x - top))
    whole = 2.0 ** (52 - x.shape[1].bit_length())
    return xp.astype(xp.where(odds > 0, odds * whole, xp.zeros_like(x)), xp.dtype(INT64))


def _counts_up_to(xp: Backend, bounds: Array, points: Array) -> Array:
    """Count, for each point, the ascending bounds of its row that it reaches, except the last.

    This is a bisection in all rows at once.
    """
    last = bounds.shape[1] - 1
    counts = xp.zeros_like(points)
    for power in reversed(range(last.bit_length())):
        further = xp.minimum(counts + 2**power, xp.full_like(counts, last))
        reached = xp.take_along_axis(bounds, further - 1, axis=1) <= points
        counts = xp.where(reached, further, counts)
    return counts


# -- dropout --------------------------------------------------------------------------------------


@op
def Dropout(
    xp: Backend,
    data: Array,
    ratio: float = 0.5,
    training_mode: bool = False,
    *,
    seed: int | None = None,
    outputs: OutputsRead,
    key: Key,
) -> Array | tuple[Array, Array]:
    """Return the data itself in inference; the mask is true for elements not dropped."""
    if not training_mode or not _drops(ratio):
        return data if outputs == 1 else (data, _full_mask(xp, data))
    mask = _drawn_mask(xp, data, ratio, seed, key)
    output = _masked(xp, data, mask=mask, ratio=ratio)
    return output if outputs == 1 else (output, mask)


@Dropout.before(12)
def dropout_in_inference(
    xp: Backend, data: Array, *, ratio: float = 0.5, outputs: OutputsRead
) -> Array | tuple[Array, Array]:
    return data if outputs == 1 else (data, _full_mask(xp, data))


@Dropout.before(10)
def dropout_with_mask_of_numbers(
    xp: Backend, data: Array, *, ratio: float = 0.5, outputs: OutputsRead
) -> Array | tuple[Array, Array]:
    return data if outputs == 1 else (data, xp.ones_like(data))


@Dropout.before(7)
def dropout_unless_tested(
    xp: Backend,
    data: Array,
    *,
    ratio: float = 0.5,
    is_test: int = 0,
    consumed_inputs: Ints | None = None,
    outputs: OutputsRead,
    key: Key,
) -> Array | tuple[Array, Array]:
    if is_test or not _drops(ratio):
        return data if outputs == 1 else (data, xp.ones_like(data))
    mask = _drawn_mask(xp, data, ratio, None, key)
    output = _masked(xp, data, mask=mask, ratio=ratio)
    return output if outputs == 1 else (output, xp.astype(mask, data.dtype))


def _drops(ratio: float) -> bool:
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio is {ratio}, but must be at least 0 and less than 1")
    return ratio > 0


def _full_mask(xp: Backend, data: Array) -> Array:
    return xp.ones(data.shape, dtype=xp.dtype(BOOL))


def _drawn_mask(xp: Backend, data: Array, ratio: float, seed: int | None, key: Key) -> Array:
    if seed is None:
        return random.uniform(xp, key, data.shape, FLOAT32) >= ratio
    # ONNX's expected values for a seed were drawn with this generator.
    xp.allow(data.shape, FLOAT64)
    drawn = np.random.RandomState(seed % 2**32).uniform(size=data.shape)
    return xp.asarray(drawn >= ratio)


@at_least_float32
def _masked(xp: Backend, data: Array, *, mask: Array, ratio: float) -> Array:
    return data * (xp.astype(mask, data.dtype) * (1 / (1 - ratio)))
