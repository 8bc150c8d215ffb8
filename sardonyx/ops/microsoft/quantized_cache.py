"""Caches of keys and values in integers of 8 or 4 bits or in float8, and what they stand for."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.casting import Cast
from sardonyx.ops.definition import DType
from sardonyx.ops.dtypes import FLOAT32, UINT8
from sardonyx.ops.microsoft.few_bits import unpacked
from sardonyx.ops.options import require_one_of
from sardonyx.ops.quantization import quantized

INT8 = np.dtype(np.int8)
FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)


class CacheFormat(NamedTuple):
    """Values are numbers of the format times `scale`, which broadcasts to them.

    Numbers of 4 bits lie two to a byte, the first one in the low bits, and 8 is their zero.
    """

    scale: Array
    dtype: DType

    @classmethod
    def of(
        cls,
        xp: Backend,
        name: str,
        quant_type: str,
        bits: int,
        scale: Array | None,
        past: Array | None,
        values: Array,
    ) -> CacheFormat | None:
        """Return the format of a past for such values, or None if it holds them as they are."""
        require_one_of(f"{name}_quant_type", quant_type, ("NONE", "PER_TENSOR", "PER_CHANNEL"))
        if quant_type == "NONE":
            if past is not None and past.dtype != values.dtype:
                raise ValueError(
                    f"the cache is {past.dtype} and {name}_quant_type is NONE, so it must be "
                    f"{values.dtype}"
                )
            return None
        if past is None or scale is None:
            raise ValueError(
                f"a quantized cache needs the inputs past_key, past_value, {name}_scale"
            )
        dtype = xp.numpy_dtype(past.dtype)
        if (bits, dtype) not in ((8, INT8), (8, FLOAT8), (4, UINT8)):
            raise ValueError(
                f"kv_cache_bit_width is {bits} and the cache is {dtype}, but it must be int8 or "
                "float8e4m3fn for 8 bits, or uint8 for 4"
            )
        _, heads, _, size = values.shape
        count = 1 if quant_type == "PER_TENSOR" else heads * size
        if scale.size != count:
            raise ValueError(f"{name}_scale has shape {scale.shape}, but must have {count} numbers")
        if dtype == UINT8 and size % 2:
            raise ValueError(f"a cache of 4 bits needs heads of an even size, not {size}")
        by_channel = (1, 1, 1, 1) if count == 1 else (1, heads, 1, size)
        return cls(xp.reshape(scale, by_channel), dtype)

    def stored(self, xp: Backend, x: Array) -> Array:
        """Return the numbers that stand for the values `x`, in the cache's dtype."""
        quotient = xp.quotient(xp.astype(x, xp.dtype(FLOAT32)), self.scale)
        if self.dtype == FLOAT8:
            return Cast(xp, quotient, to=FLOAT8)
        numbers = quantized(xp, quotient, xp.zeros((), dtype=xp.dtype(FLOAT32)), INT8)
        if self.dtype == INT8:
            return numbers
        numbers = xp.astype(xp.minimum(xp.maximum(numbers, -8), 7) + 8, xp.dtype(UINT8))
        pairs = xp.reshape(numbers, (*x.shape[:3], x.shape[3] // 2, 2))
        return pairs[..., 0] + pairs[..., 1] * 16

    def loaded(self, xp: Backend, cache: Array, like: Array) -> Array:
        """Return the values of a cache, in the dtype of `like`."""
        numbers = unpacked(xp, cache, 4) if self.dtype == UINT8 else cache
        values = xp.astype(numbers, xp.dtype(FLOAT32)) - (8 if self.dtype == UINT8 else 0)
        return xp.astype(values * self.scale, like.dtype)


def cache_shape(form: CacheFormat | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that values of this shape have in the cache."""
    is_packed = form is not None and form.dtype == UINT8
    return (*shape[:3], shape[3] // 2) if is_packed else shape
