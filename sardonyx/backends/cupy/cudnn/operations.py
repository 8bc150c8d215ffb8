"""Convolution and attention by cuDNN, where it is installed and has a plan for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cupy

from sardonyx.backends.cupy.cudnn import attention, convolution
from sardonyx.backends.cupy.cudnn.attention import attention_key
from sardonyx.backends.cupy.cudnn.calls import Call, aligned
from sardonyx.backends.cupy.cudnn.convolution import convolution_key, key_with_epilogue
from sardonyx.backends.cupy.cudnn.convolution_epilogues import ConvolutionEpilogues, key_of
from sardonyx.backends.cupy.cudnn.normalization import Normalizations, normalization_key
from sardonyx.backends.cupy.cudnn.plans import Plan, Refusal, Slower, plans_of
from sardonyx.backends.cupy.fused_segments import FusedSegments
from sardonyx.backends.executable import Executable, Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.fusion.native import native_calls

# A plan's first result is compared for so many queries: all scores may need too much memory.
FIRST_QUERIES = 64


@dataclass(eq=False)
class CudnnCalls:
    """The calls of a segment that cuDNN has plans for, and why it has none for others."""

    backend: CudnnOperations
    refusals: list[str] = field(default_factory=list)

    def has_convolution(self, x: Spec, weight: Spec, **layout: Any) -> bool:
        key = convolution_key(x, weight, **layout)
        found = None if key is None else self.backend.tried_convolution(key)
        return self._is_plan(found, f"a convolution of {x.dtype}")

    def has_convolution_and_more(
        self, x: Spec, weight: Spec, others: Sequence[Spec], epilogue: Epilogue, **layout: Any
    ) -> bool:
        key = key_with_epilogue(x, weight, others, epilogue, **layout)
        if key is None:
            return False
        return self._is_plan(self.backend.tried_convolution(key), f"{key.title} of {x.dtype}")

    def has_attention(self, *arrays: Spec, scale: float) -> bool:
        key = attention_key(*arrays, scale=scale)
        found = None if key is None else plans_of(self.backend.device).find(key)
        return self._is_plan(found, f"an attention of {arrays[0].dtype}")

    def has_normalization(self, rows: Spec, *, has_bias: bool, is_centred: bool) -> bool:
        key = normalization_key(rows, has_bias=has_bias, is_centred=is_centred)
        found = None if key is None else self.backend.tried_normalization(key)
        return self._is_plan(found, f"a normalization of {rows.dtype}")

    def _is_plan(self, found: Plan | Refusal | None, work: str) -> bool:
        if isinstance(found, Refusal) and not isinstance(found, Slower):
            self.refusals.append(f"cuDNN does not compute {work}: {found.reason}")
        return isinstance(found, Plan)


class CudnnOperations(FusedSegments, ConvolutionEpilogues, Normalizations):
    """What cuDNN does not compute is computed as without it."""

    def bind(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        note: Any,
        **options: Any,
    ) -> Executable:
        if not self.has_cudnn:
            return super().bind(replay, arguments, note, **options)
        calls = CudnnCalls(self)
        with native_calls(calls):
            executable = super().bind(replay, arguments, note, **options)
        for reason in dict.fromkeys(calls.refusals):
            note(reason)
        return executable

    def convolution(
        self, x: Any, weight: Any, *, strides: Any, pads: Any, dilations: Any, groups: int
    ) -> Any:
        """Zeros of the padding are multiplied as elsewhere: cuDNN may leave them out."""
        layout = {"strides": strides, "dilations": dilations, "groups": groups}
        widths, none = [(0, 0), (0, 0), *pads], ((0, 0),) * len(pads)
        padded = tuple(n + sum(pair) for n, pair in zip(x.shape, widths, strict=True))
        specs = Spec(padded, x.dtype), Spec(weight.shape, weight.dtype)
        key = self.has_cudnn and convolution_key(*specs, **_hashable(layout))
        if not key or not isinstance(self.tried_convolution(key), Plan):
            return super().convolution(x, weight, pads=pads, **layout)
        x = self.pad(x, widths, 0) if any(map(any, pads)) else x
        otherwise = partial(super().convolution, x, weight, pads=none, **layout)
        shape = (*key.result[:2], *key.result[len(key.result) - len(pads) :])

        def arrays() -> dict[int, Any]:
            result = cupy.empty(shape, x.dtype)
            operands = {convolution.X: aligned(x), convolution.WEIGHT: aligned(weight)}
            return {**operands, convolution.RESULT: result}

        call = Call(key, arrays, convolution.RESULT, otherwise, expected=otherwise)
        return call.run(self.convolution_plans)

    def convolves_with(
        self, x: Any, weight: Any, others: Any, epilogue: Epilogue, **layout: Any
    ) -> bool:
        key = key_of((x, weight, *others), epilogue, **layout) if self.has_cudnn else None
        return key is not None and isinstance(self.tried_convolution(key), Plan)

    def attention(
        self, q: Any, k: Any, v: Any, bias: Any = None, *, scale: float, is_guarded: bool = False
    ) -> Any:
        """A guard comes after the call: which of cuDNN's results are zeros is unknown."""
        operands = [q, k, v] if bias is None else [q, k, v, bias]
        specs = [Spec(array.shape, array.dtype) for array in operands]
        key = self.has_cudnn and attention_key(*specs, scale=scale)
        if not key:
            return super().attention(*operands, scale=scale, is_guarded=is_guarded)
        if is_guarded:
            return self.with_zeros_for_nan(self.attention(*operands, scale=scale), bias)
        plain = partial(super().attention, scale=scale)

        def arrays() -> dict[int, Any]:
            whole = operands[:3]
            if key.bias is not None:
                whole.append(cupy.broadcast_to(bias, (*bias.shape[:-2], *key.bias[2:])))
            result = cupy.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
            numbers = (attention.QUERIES, attention.KEYS, attention.VALUES, attention.BIAS)
            named = dict(zip(numbers, map(aligned, whole), strict=False))
            return {**named, attention.RESULT: result}

        def expected() -> Any:
            """The first queries' results, by scores of 32 bits as cuDNN's, not of 16."""
            first = [q[..., :FIRST_QUERIES, :], k, v]
            if bias is not None:
                first.append(bias[..., :FIRST_QUERIES, :] if bias.ndim > 1 else bias)
            return plain(*(array.astype(cupy.float32) for array in first))

        call = Call(key, arrays, attention.RESULT, partial(plain, *operands), expected)
        return call.run(plans_of(self.device))


def _hashable(layout: dict[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, int) else tuple(v) for k, v in layout.items()}
