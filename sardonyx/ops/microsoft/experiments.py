"""The operators that early versions of ONNX tried out, as onnxruntime runs them below opset 10."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation, indexing
from sardonyx.ops.axes import sliced
from sardonyx.ops.definition import Floats, Ints, op
from sardonyx.ops.normalization import MeanVarianceNormalization
from sardonyx.ops.precision import at_least_float32

# -- element by element ---------------------------------------------------------------------------


@op
@at_least_float32
def Affine(xp: Backend, X: Array, *, alpha: float = 1.0, beta: float = 0.0) -> Array:
    return X * alpha + beta


@op
@at_least_float32
def Scale(xp: Backend, input: Array, *, scale: float = 1.0) -> Array:
    return input * scale


@op
@at_least_float32
def ScaledTanh(xp: Backend, input: Array, *, alpha: float, beta: float) -> Array:
    """Return `alpha * tanh(beta * input)`."""
    return alpha * xp.tanh(input * beta)


@op
@at_least_float32
def ParametricSoftplus(xp: Backend, X: Array, *, alpha: float, beta: float) -> Array:
    """Return `alpha * log(exp(beta * X) + 1)`."""
    return alpha * activation.Softplus(xp, X * beta)


# -- images and parts -----------------------------------------------------------------------------


@op
@at_least_float32
def ImageScaler(xp: Backend, input: Array, *, bias: Floats, scale: float = 1.0) -> Array:
    """Scale images (N, C, H, W), and add to each channel its own bias."""
    _require_images(input)
    if len(bias) != input.shape[1]:
        raise ValueError(f"bias has {len(bias)} numbers, but input has {input.shape[1]} channels")
    of_channels = xp.asarray(bias, dtype=input.dtype)
    return input * scale + xp.reshape(of_channels, (len(bias), 1, 1))


@op
def Crop(xp: Backend, input: Array, *, border: Ints, scale: Ints | None = None) -> Array:
    """Cut borders off images (N, C, H, W): left, top, right and bottom.

    `scale` is a height and a width; it stands for the borders at the bottom and on the right.
    """
    _require_images(input)
    if len(border) != 4 or min(border) < 0:
        raise ValueError(f"border is {border}, but must be four numbers from 0 on")
    if scale is not None and (len(scale) != 2 or min(scale) < 0):
        raise ValueError(f"scale is {scale}, but must be a height and a width")
    left, top, right, bottom = border
    height, width = input.shape[2:]
    down, across = scale or (height - top - bottom, width - left - right)
    if min(down, across) < 0 or top + down > height or left + across > width:
        raise ValueError(
            f"input has shape {input.shape}, which is too small for border {border}"
            + (f" and scale {scale}" if scale else "")
        )
    return sliced(sliced(input, 2, top, top + down), 3, left, left + across)


def _require_images(x: Array) -> None:
    if x.ndim != 4:
        raise ValueError(f"input has shape {x.shape}, but must have four axes")


@op
def DynamicSlice(
    xp: Backend, data: Array, starts: Ints, ends: Ints, axes: Ints | None = None
) -> Array:
    """Slice along some axes, as Slice does since opset 10."""
    Y: Array = indexing.Slice(xp, data, starts, ends, axes)
    return Y


# -- normalization --------------------------------------------------------------------------------


@MeanVarianceNormalization.before(9)
@at_least_float32
def normalization_across_channels(
    xp: Backend, X: Array, *, across_channels: int = 0, normalize_variance: int = 1
) -> Array:
    axes = (0, 1, 2, 3) if across_channels else (0, 2, 3)
    inner = tuple(axis for axis in axes if axis < X.ndim)
    if not normalize_variance:
        return X - xp.mean(X, axis=inner, keepdims=True)
    Y: Array = MeanVarianceNormalization(xp, X, axes=inner)
    return Y
