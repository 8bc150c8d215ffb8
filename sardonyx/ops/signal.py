"""Signal processing: Fourier transforms, windows and the mel scale."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.deviations import SIGNAL_WITHOUT_PARTS, accept
from sardonyx.ops.axes import axis_within, require_shape, sliced
from sardonyx.ops.definition import DType, Floats, Host, op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64
from sardonyx.ops.precision import wide

# -- spectra --------------------------------------------------------------------------------------


@op
def DFT(
    xp: Backend,
    input: Array,
    dft_length: int | None = None,
    axis: int = -2,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    axis = _signal_axis(input, axis)
    if onesided and (input.shape[-1] == 2) != bool(inverse):
        raise ValueError(
            f"input has shape {input.shape}, but with onesided it must end in "
            f"{2 if inverse else 1}: a spectrum is complex, and its signal real"
        )
    size = input.shape[axis]
    length = 2 * (size - 1) if onesided and inverse else size
    if dft_length is None and length == 0 and (inverse or not onesided):
        # Nothing to transform: onnxruntime and sums of no terms agree.
        shape = (*input.shape[:axis], 0, *input.shape[axis + 1 : -1], 1 if onesided else 2)
        return xp.zeros(shape, dtype=input.dtype)
    length = length if dft_length is None else dft_length
    if length < 1:
        raise ValueError(f"the transform has length {length}, but must be positive")
    parts = _parts_of(wide(xp, input))
    if onesided and inverse:
        real, imaginary = (_resized(xp, part, axis, length // 2 + 1) for part in parts)
        whole = (
            _both_sides(xp, real, axis, length, sign=1),
            _both_sides(xp, imaginary, axis, length, sign=-1),
        )
        signal, _ = _transformed(xp, whole, axis, inverse=True, dtype=real.dtype)
        return xp.astype(xp.expand_dims(signal, axis=-1), input.dtype)
    parts = tuple(_resized(xp, part, axis, length) for part in parts)
    kept = length // 2 + 1 if onesided else None
    spectrum = _transformed(xp, parts, axis, inverse=bool(inverse), dtype=parts[0].dtype, kept=kept)
    return xp.astype(xp.stack(spectrum, axis=-1), input.dtype)


@DFT.before(20)
def dft_along_attribute(
    xp: Backend,
    input: Array,
    dft_length: int | None = None,
    *,
    axis: int = 1,
    **others: Annotated[Any, DFT],
) -> Array:
    return DFT(xp, input, dft_length, axis, **others)


@op
def STFT(
    xp: Backend,
    signal: Array,
    frame_step: int,
    window: Array | None = None,
    frame_length: int | None = None,
    *,
    onesided: int = 1,
) -> Array:
    if signal.ndim == 2:
        accept(SIGNAL_WITHOUT_PARTS, f"signal has shape {signal.shape}")
        signal = xp.expand_dims(signal, axis=-1)
    if signal.ndim != 3:
        raise ValueError(
            f"signal has shape {signal.shape}, but must have three axes: batch, time and parts"
        )
    _signal_axis(signal, 1)
    batch, size, parts = signal.shape
    if frame_length is None:
        frame_length = size if window is None else window.size
    if window is not None:
        require_shape("window", window, (frame_length,))
    if not 1 <= frame_length <= size or frame_step < 1:
        raise ValueError(
            f"frame_length {frame_length} must be from 1 to {size}, the length of the signal, and "
            f"frame_step {frame_step} at least 1"
        )
    count = (size - frame_length) // frame_step + 1
    xp.allow((batch, count, frame_length), np.dtype(np.complex128), copies=4)
    starts = xp.reshape(xp.arange(count) * frame_step, (-1, 1))
    places = xp.reshape(starts + xp.arange(frame_length), (-1,))
    frames = xp.reshape(xp.take(signal, places, axis=1), (batch, count, frame_length, parts))
    frames = wide(xp, frames)
    dtype = frames.dtype
    if window is not None:
        double = xp.dtype(FLOAT64)
        window = xp.reshape(xp.astype(window, double), (frame_length, 1))
        frames = xp.astype(frames, double) * window
    spectrum = _transformed(
        xp,
        _parts_of(frames),
        2,
        inverse=False,
        dtype=dtype,
        kept=frame_length // 2 + 1 if onesided else None,
    )
    return xp.astype(xp.stack(spectrum, axis=-1), signal.dtype)


def _signal_axis(x: Array, axis: int) -> int:
    """Return the axis counted from the front; it must not be the last, which holds the parts."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ValueError(f"shape {x.shape} must end in 1 or 2, for the real and imaginary parts")
    axis = axis_within(axis, x.ndim)
    if axis == x.ndim - 1:
        raise ValueError(
            f"axis {axis} holds the real and imaginary parts; choose the axis of the signal"
        )
    return axis


def _parts_of(x: Array) -> tuple[Array, ...]:
    """Return the real parts and, if there are any, the imaginary ones: the last axis has them."""
    return tuple(x[..., i] for i in range(x.shape[-1]))


def _transformed(
    xp: Backend,
    parts: tuple[Array, ...],
    axis: int,
    *,
    inverse: bool,
    dtype: Any,
    kept: int | None = None,
) -> tuple[Array, Array]:
    """Transform an array; return the parts of the first elements in float32 or float64.

    ONNX's published cases show that spectra were computed in double precision, as elements near
    zero are exact; signals have the rounding errors of single precision.
    """
    to = xp.numpy_dtype(dtype)
    if not parts[0].size:
        empty = xp.astype(sliced(parts[0], axis, 0, kept), dtype)
        return empty, empty
    double = not inverse or to == FLOAT64
    return xp.fourier(*parts, axis=axis, dtype=to, inverse=inverse, double=double, kept=kept)


def _resized(xp: Backend, x: Array, axis: int, size: int) -> Array:
    """Return `x` truncated or zero-padded along an axis."""
    missing = size - x.shape[axis]
    if missing > 0:
        return xp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)], 0)
    return sliced(x, axis, 0, size)


def _both_sides(xp: Backend, half: Array, axis: int, length: int, *, sign: int) -> Array:
    """Return one part of the full spectrum of a real signal, whose second half is conjugate."""
    mirrored = xp.flip(sliced(half, axis, 1, (length + 1) // 2), axis=axis)
    return xp.concat([half, mirrored if sign > 0 else xp.negative(mirrored)], axis=axis)


# -- windows --------------------------------------------------------------------------------------


def _window(
    xp: Backend, size: int, cosines: Floats, *, output_datatype: DType = FLOAT32, periodic: int = 1
) -> Array:
    """Return a sum of cosines over one period, which ends with the window or one element later."""
    if size < 0:
        raise ValueError(f"size is {size}, but must not be negative")
    xp.allow((size,), FLOAT64, copies=8)
    period = size if periodic else size - 1
    if period == 0:
        # A single element is the middle of its window.
        return xp.ones(size, dtype=xp.dtype(output_datatype))
    angles = np.arange(size) * (2 * math.pi / period)
    # Summed from the smallest on, so that the middle is exactly 1.
    values = sum(weight * np.cos(k * angles) for k, weight in reversed([*enumerate(cosines)]))
    return xp.astype(xp.asarray(values), xp.dtype(output_datatype))


@op
def HannWindow(xp: Backend, size: int, **options: Annotated[Any, _window]) -> Array:
    return _window(xp, size, (0.5, -0.5), **options)


@op
def HammingWindow(xp: Backend, size: int, **options: Annotated[Any, _window]) -> Array:
    return _window(xp, size, (25 / 46, -21 / 46), **options)


@op
def BlackmanWindow(xp: Backend, size: int, **options: Annotated[Any, _window]) -> Array:
    return _window(xp, size, (0.42, -0.5, 0.08), **options)


# -- the mel scale --------------------------------------------------------------------------------


@op
def MelWeightMatrix(
    xp: Backend,
    num_mel_bins: int,
    dft_length: int,
    sample_rate: int,
    lower_edge_hertz: float,
    upper_edge_hertz: float,
    *,
    output_datatype: DType = FLOAT32,
) -> Array:
    """Return triangular filters, evenly spaced in mel, with corners on bins of the DFT."""
    if min(num_mel_bins, dft_length) < 0 or sample_rate < 1:
        raise ValueError(
            f"num_mel_bins {num_mel_bins} and dft_length {dft_length} must not be negative, and "
            f"sample_rate {sample_rate} must be positive"
        )
    if not -700 < lower_edge_hertz <= upper_edge_hertz < math.inf:
        raise ValueError(
            f"lower_edge_hertz {lower_edge_hertz} and upper_edge_hertz {upper_edge_hertz} must be "
            "in order, finite and above -700"
        )
    shape = (dft_length // 2 + 1, num_mel_bins)
    xp.allow(shape, FLOAT64, copies=8)
    corners = _corners(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    low, centre, high = corners[:-2], corners[1:-1], corners[2:]
    place = np.arange(shape[0])[:, None]
    # A triangle without a left side starts at its peak; one without a right side ends there.
    rising = np.where(place < centre, (place - low) / np.maximum(centre - low, 1), 1.0)
    falling = (high - place) / np.maximum(high - centre, 1)
    weights = np.where(place <= centre, rising, falling)
    weights = np.where((place >= low) & (place <= np.maximum(centre, high)), weights, 0.0)
    return xp.astype(xp.asarray(weights), xp.dtype(output_datatype))


# Beyond all bins, but within int64.
FARTHEST = 2.0**53


def _corners(bins: int, length: int, rate: int, lower: float, upper: float) -> Host:
    """Return the bins of corners: triangle i begins at corner i, peaks at i + 1, ends at i + 2."""
    lowest, highest = (2595 * math.log1p(f / 700) / math.log(10) for f in (lower, upper))
    mels = lowest + np.arange(bins + 2) * ((highest - lowest) / (bins + 2))
    hertz = 700 * np.expm1(mels / 2595 * math.log(10))
    corners: Host = np.floor(np.minimum((length + 1) * hertz / rate, FARTHEST)).astype(np.int64)
    return corners
