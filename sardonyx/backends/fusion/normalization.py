"""Normalization of few long rows: a call of the library, which else computes its reductions."""

from __future__ import annotations

import math
from typing import Any

from sardonyx.backends.executable import Spec
from sardonyx.backends.fusion.attention import AttentionFunctions
from sardonyx.backends.fusion.native import current_calls

# A kernel with one block for each row leaves the device idle if few rows have more elements.
FEW_ROWS, LONGEST_ROW = 16, 2**15


class NormalizationFunctions(AttentionFunctions):
    """Of all other rows a generated kernel is the only one, and computes what surrounds it too."""

    def normalizes_rows(self, x: Any, scale: Any, bias: Any, *, is_centred: bool) -> bool:
        calls, length = current_calls(), math.prod(scale.shape)
        arrays = [array for array in (x, scale, bias) if array is not None]
        if calls is None or not x.size or {array.dtype for array in arrays} != {x.dtype}:
            return False
        if any(x.shape[x.ndim - y.ndim :] != y.shape or not y.ndim for y in arrays[1:]):
            return False
        rows = Spec((x.size // length, length), x.dtype)
        return (
            all(y.shape == scale.shape for y in arrays[2:])
            and is_left_to_library(*rows.shape)
            and calls.has_normalization(rows, has_bias=bias is not None, is_centred=is_centred)
        )

    def normalized_rows(
        self, x: Any, scale: Any, bias: Any, *, epsilon: float, is_centred: bool
    ) -> Any:
        return self.opaque(
            "normalized_rows", x, scale, bias, epsilon=epsilon, is_centred=is_centred
        )


def is_left_to_library(rows: int, length: int) -> bool:
    """Whether a reduction of rows is a call of the library."""
    return length > LONGEST_ROW and rows < FEW_ROWS
