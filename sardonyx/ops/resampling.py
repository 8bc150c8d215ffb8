"""Resize and Upsample: each axis is resampled separately at evenly spaced positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axes_within
from sardonyx.ops.definition import DType, Floats, Host, Ints, op
from sardonyx.ops.dtypes import FLOAT64
from sardonyx.ops.interpolation import (
    Taps,
    cubic_taps,
    linear_taps,
    narrowed,
    nearest_tap,
    resampled,
    widened,
)
from sardonyx.ops.options import require_one_of


class Span(NamedTuple):
    """An axis of `length` elements that is resized to `size`."""

    length: int
    size: int
    # The requested scale; `size` is rounded, and may be less than `length * scale`.
    scale: Fraction
    # The cropped part of the axis, relative to its length.
    start: float = 0
    end: float = 1


@op
def Resize(
    xp: Backend,
    X: Array,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    transformation = coordinate_transformation_mode
    axes = axes_within(range(X.ndim) if axes is None else axes, X.ndim)
    lengths = [X.shape[axis] for axis in axes]
    if scales and sizes:
        raise ValueError("scales and sizes are both present, but only one of them may be")
    if sizes:
        spans = _sized(lengths, sizes, keep_aspect_ratio_policy)
    else:
        spans = _scaled(lengths, scales or ())
    crops = transformation == "tf_crop_and_resize"
    if crops and roi:
        spans = _cropped(spans, roi)
    if not np.isfinite(cubic_coeff_a):
        raise ValueError(f"cubic_coeff_a is {cubic_coeff_a}, but must be a finite number")
    positions = _chosen("coordinate_transformation_mode", transformation, _POSITIONS)
    to_nearest = _chosen("nearest_mode", nearest_mode, _NEAREST)
    interpolates = _chosen("mode", mode, {"nearest": False, "linear": True, "cubic": True})

    def taps(span: Span) -> Taps:
        if not interpolates:
            return nearest_tap(to_nearest(positions(span)), span.length)
        stretch = max(1.0, float(1 / span.scale)) if antialias else 1.0
        options: Any = {"stretch": stretch, "exclude": bool(exclude_outside)}
        if mode == "cubic":
            return cubic_taps(positions(span), span.length, cubic_coeff_a, **options)
        return linear_taps(positions(span), span.length, **options)

    along = dict(zip(axes, spans, strict=True))
    Y = _resized(xp, X, along, taps, interpolates=interpolates)
    return _extrapolated(xp, Y, along, extrapolation_value) if crops else Y


@Resize.before(11)
def resize_from_the_corner(
    xp: Backend, X: Array, scales: Floats, *, mode: str = "nearest"
) -> Array:
    """Resample at multiples of 1 / scale; the nearest element is the one before the position.

    Where an axis shrinks it is the one after, as in the test cases of the standard at the time.
    """
    spans = _scaled(X.shape, scales)
    interpolates = _chosen("mode", mode, {"nearest": False, "linear": True})

    def taps(span: Span) -> Taps:
        positions = _asymmetric(span)
        if interpolates:
            return linear_taps(positions, span.length)
        to_nearest = np.ceil if span.scale < 1 else np.floor
        return nearest_tap(to_nearest(positions), span.length)

    return _resized(xp, X, dict(enumerate(spans)), taps, interpolates=interpolates)


@op
def Upsample(xp: Backend, X: Array, scales: Floats, *, mode: str = "nearest") -> Array:
    if any(scale < 1 for scale in scales):
        raise ValueError(f"scales {scales} must be at least 1; use Resize for smaller ones")
    Y: Array = resize_from_the_corner(xp, X, scales, mode=mode)
    return Y


@Upsample.before(7)
def upsample_height_and_width(
    xp: Backend, X: Array, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Array:
    if X.ndim != 4:
        raise ValueError(f"X has {X.ndim} axes, but must have four")
    mode = _chosen("mode", mode, {"nearest": "nearest", "bilinear": "linear"})
    Y: Array = Upsample(xp, X, (1.0, 1.0, height_scale, width_scale), mode=mode)
    return Y


def _resized(
    xp: Backend,
    X: Array,
    spans: Mapping[int, Span],
    taps: Callable[[Span], Taps],
    *,
    interpolates: bool,
) -> Array:
    sizes = list(X.shape)
    for axis, span in spans.items():
        if span.size and not span.length:
            raise ValueError(f"axis {axis} has size 0 and cannot be resized to {span.size}")
        xp.allow((span.size,), FLOAT64, copies=8)
        sizes[axis] = span.size
    dtype = xp.numpy_dtype(X.dtype)
    xp.allow(tuple(sizes), dtype)
    if 0 in sizes:
        return xp.zeros(tuple(sizes), dtype=X.dtype)
    Y = widened(xp, X) if interpolates else X
    # The axis that shrinks most goes first, to reduce the work on the others.
    for axis in sorted(spans, key=lambda axis: spans[axis].scale):
        if spans[axis] != Span(X.shape[axis], X.shape[axis], Fraction(1)):
            Y = resampled(xp, Y, axis, taps(spans[axis]))
    return narrowed(xp, Y, dtype)


def _extrapolated(xp: Backend, Y: Array, spans: Mapping[int, Span], value: float) -> Array:
    """Return `Y` with `value` wherever a position lies outside the axis."""
    for axis, span in spans.items():
        positions = _in_crop(span)
        outside = (positions < 0) | (positions > span.length - 1)
        if np.any(outside):
            along = (-1, *(1,) * (Y.ndim - axis - 1))
            filling = _as_element(xp, value, xp.numpy_dtype(Y.dtype))
            Y = xp.where(xp.reshape(xp.asarray(outside), along), filling, Y)
    return Y


def _as_element(xp: Backend, value: float, dtype: DType) -> Array:
    if dtype.kind == "O":
        raise ValueError(f"extrapolation_value {value} is not a string, but X contains strings")
    return narrowed(xp, xp.asarray(np.asarray(value, FLOAT64)), dtype)


# -- sizes ----------------------------------------------------------------------------------------


def _scaled(lengths: Sequence[int], scales: Floats) -> list[Span]:
    if len(scales) != len(lengths) or not all(0 < scale < np.inf for scale in scales):
        raise ValueError(f"scales {scales} must be {len(lengths)} positive numbers, one per axis")
    exact = map(_simplest_fraction, scales)
    return [Span(n, floor(n * scale), scale) for n, scale in zip(lengths, exact, strict=True)]


def _simplest_fraction(scale: float) -> Fraction:
    """Return the simplest fraction that rounds to `scale` in float32.

    A scale such as 0.7 arrives rounded to float32. Its exact value would turn 10 elements into 6,
    and shift positions such as 6.0 to 5.9999998, which belongs to the previous element.
    """
    for bits in range(13):
        simple = Fraction(scale).limit_denominator(2**bits)
        if np.float32(float(simple)) == np.float32(scale):
            return simple
    return Fraction(scale)


def _sized(lengths: Sequence[int], sizes: Ints, policy: str) -> list[Span]:
    if len(sizes) != len(lengths) or min(sizes) < 0:
        raise ValueError(f"sizes {sizes} must be {len(lengths)} numbers, none of them negative")
    policies = {"stretch": None, "not_larger": min, "not_smaller": max}
    choose = _chosen("keep_aspect_ratio_policy", policy, policies)
    ratios = [
        Fraction(size, n) if n else Fraction(0) for n, size in zip(lengths, sizes, strict=True)
    ]
    if choose is None:
        return [Span(*both) for both in zip(lengths, sizes, ratios, strict=True)]
    ratio = choose(ratios)
    return [Span(n, floor(n * ratio + Fraction(1, 2)), ratio) for n in lengths]


_FARTHEST = 1e30


def _cropped(spans: Sequence[Span], roi: Floats) -> list[Span]:
    """Crop to the regions but leave the sizes, as ONNX's shape inference does, unlike its text."""
    if len(roi) != 2 * len(spans) or not all(abs(end) < _FARTHEST for end in roi):
        raise ValueError(f"roi {roi} must be {2 * len(spans)} numbers, a start and an end per axis")
    ends = zip(spans, roi[: len(spans)], roi[len(spans) :], strict=True)
    return [span._replace(start=start, end=end) for span, start, end in ends]


# -- positions ------------------------------------------------------------------------------------
# Each divides only once, so that integers and halves are exact and are rounded correctly.


def _half_pixel(span: Span) -> Host:
    scale, one = _terms(span)
    return ((2 * np.arange(span.size) + 1) * one - scale) / (2 * scale)


def _half_pixel_symmetric(span: Span) -> Host:
    """Return positions such that the centres of the requested and the actual size coincide."""
    scale, one = _terms(span)
    offset = span.length * scale - span.size * one
    return ((2 * np.arange(span.size) + 1) * one - scale + offset) / (2 * scale)


def _half_pixel_of_pytorch(span: Span) -> Host:
    return _half_pixel(span) if span.size > 1 else np.zeros(span.size)


def _half_pixel_of_tensorflow(span: Span) -> Host:
    scale, one = _terms(span)
    return (2 * np.arange(span.size) + 1) * one / (2 * scale)


def _align_corners(span: Span) -> Host:
    """Return positions that align the last corner with that of the unrounded size."""
    scale, one = _terms(span)
    steps = span.length * scale - one
    return np.arange(span.size) * ((span.length - 1) * one) / (steps if span.size > 1 else 1)


def _asymmetric(span: Span) -> Host:
    scale, one = _terms(span)
    return np.arange(span.size) * one / scale


def _in_crop(span: Span) -> Host:
    first, last = span.start * (span.length - 1), span.end * (span.length - 1)
    if span.size == 1:
        return np.full(1, (first + last) / 2)
    positions = first + np.arange(span.size) * (last - first) / (span.size - 1)
    # A rounding error must not move a position outside the axis.
    return np.clip(positions, min(first, last), max(first, last))


def _terms(span: Span) -> tuple[float, float]:
    """Return the scale and 1, multiplied by the same factor to be integers."""
    return float(span.scale.numerator), float(span.scale.denominator)


_POSITIONS: Mapping[str, Callable[[Span], Host]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _half_pixel_of_pytorch,
    "tf_half_pixel_for_nn": _half_pixel_of_tensorflow,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_crop_and_resize": _in_crop,
}

_NEAREST: Mapping[str, Callable[[Host], Host]] = {
    "round_prefer_floor": lambda positions: np.ceil(positions - 0.5),
    "round_prefer_ceil": lambda positions: np.floor(positions + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}

Choice = TypeVar("Choice")


def _chosen(name: str, value: str, choices: Mapping[str, Choice]) -> Choice:
    require_one_of(name, value, choices)
    return choices[value]
