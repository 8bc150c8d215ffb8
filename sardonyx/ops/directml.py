"""DirectML's element-wise identity, x * scale + bias."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, op

_MINORS = {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 5}
_LEVELS = tuple(f"{major}.{minor}" for major, count in _MINORS.items() for minor in range(count))

_HALF_AND_SINGLE = ("float32", "float16")
_UP_TO_32_BITS = (*_HALF_AND_SINGLE, "int32", "int16", "int8", "uint32", "uint16", "uint8")
_ALL = (*_UP_TO_32_BITS, "float64", "int64", "uint64")

_FLOAT64 = np.dtype(np.float64)

# The ranks and dtypes that DirectML supports from each feature level on.
_TABLES = {
    "1.0": (range(4, 6), _HALF_AND_SINGLE),
    "2.1": (range(4, 6), _UP_TO_32_BITS),
    "3.0": (range(1, 9), _UP_TO_32_BITS),
    "4.1": (range(1, 9), _ALL),
}


@op(domain="com.microsoft.directml")
def ElementWiseIdentity(
    xp: Backend,
    input: Array,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    feature_level: float = 4.1,
) -> Array:
    """Return `input * scale + bias`; with scale 1 and bias 0, the input itself."""
    check_support(xp.numpy_dtype(input.dtype), input.ndim, feature_level)
    return scaled(xp, input, scale, bias)


def scaled(xp: Backend, x: Array, scale: float, bias: float) -> Array:
    """Return `x * scale + bias` in the dtype of `x`; `x` itself where nothing changes.

    Integers are computed in float64 and converted back as Direct3D does: truncated towards zero,
    clamped to the range of their dtype, NaN as 0. 64-bit integers are exact if scale and bias are
    whole numbers.
    """
    if scale == 1 and bias == 0:
        return x
    if xp.isdtype(x.dtype, "real floating"):
        return x * scale + bias
    wide = xp.astype(x, xp.dtype(_FLOAT64)) * scale + bias
    result = _limited(xp, wide, xp.numpy_dtype(x.dtype))
    whole = all(float(number).is_integer() and abs(number) < 2**63 for number in (scale, bias))
    if not whole or xp.numpy_dtype(x.dtype).itemsize < 8:
        return result
    # float64 has only 53 bits. Modulo 2**64 the product is exact unless it left the range; then it
    # differs from the float64 result by at least 2**64.
    modulo = x * _constant(xp, x.dtype, int(scale)) + _constant(xp, x.dtype, int(bias))
    return xp.where(xp.abs(xp.astype(modulo, wide.dtype) - wide) < 2.0**62, modulo, result)


def _limited(xp: Backend, wide: Array, dtype: DType) -> Array:
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(limits.max)
    # float64 cannot represent 2**63 - 1: values at a limit are replaced after the conversion.
    inside = xp.where((wide > low) & (wide < high), wide, xp.zeros_like(wide))
    result = xp.astype(xp.trunc(inside), xp.dtype(dtype))
    result = xp.where(wide >= high, _constant(xp, result.dtype, limits.max), result)
    return xp.where(wide <= low, _constant(xp, result.dtype, limits.min), result)


def _constant(xp: Backend, dtype: DType, number: int) -> Array:
    return xp.put(np.asarray(number % 2**64, np.uint64).astype(xp.numpy_dtype(dtype)))


def check_support(dtype: DType, rank: int, feature_level: float | str) -> None:
    """Raise a ValueError if DirectML does not support such a tensor at `feature_level`."""
    level = level_name(feature_level)
    if allows(dtype, rank, level):
        return
    lowest = next((since for since in _TABLES if allows(dtype, rank, since)), None)
    way_out = f"the lowest that does is {lowest}" if lowest else "and no other level does"
    ranks, names = _in_force(level)
    raise ValueError(
        f"DirectML's feature level {level} takes no {dtype.name} tensor of rank {rank}, {way_out}; "
        f"it takes ranks {ranks[0]} to {ranks[-1]} of {', '.join(names)}"
    )


def allows(dtype: DType, rank: int, level: str = "4.1") -> bool:
    """Return whether DirectML supports a tensor of this dtype and rank at a feature level."""
    ranks, names = _in_force(level)
    return rank in ranks and dtype.name in names


def _in_force(level: str) -> tuple[range, tuple[str, ...]]:
    return _TABLES[max(since for since in _TABLES if since <= level)]


def level_name(feature_level: float | str) -> str:
    """Return the feature level as DirectML's documentation writes it, for a number or text.

    ONNX's attributes are float32, in which 4.1 is 4.0999999.
    """
    name = str(feature_level)
    if not isinstance(feature_level, str):
        near = (level for level in _LEVELS if abs(float(level) - feature_level) < 1e-6)
        name = next(near, name)
    if name not in _LEVELS:
        raise ValueError(f"DirectML has no feature level {name!r}; it has {', '.join(_LEVELS)}")
    return name
