"""Attention: a call of the library, if it has kernels for it, and else its parts."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.executable import Spec
from sardonyx.backends.fusion.native import current_calls
from sardonyx.backends.fusion.windows import WindowFunctions


class AttentionFunctions(WindowFunctions):
    """Of the parts, products are calls, and what lies between them is a kernel."""

    def attention(
        self, q: Any, k: Any, v: Any, bias: Any = None, *, scale: float, is_guarded: bool = False
    ) -> Any:
        arrays = [self.asarray(x) for x in (q, k, v, bias) if x is not None]
        calls, specs = current_calls(), [Spec(array.shape, array.dtype) for array in arrays]
        if calls is None or not calls.has_attention(*specs, scale=scale):
            return super().attention(*arrays, scale=scale, is_guarded=is_guarded)
        mixed = self.opaque("attention", *arrays, scale=scale)
        return self.with_zeros_for_nan(mixed, bias) if is_guarded else mixed
