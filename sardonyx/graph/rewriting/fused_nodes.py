"""Nodes that onnxruntime's optimizer fused, divided into the standard's operators.

Kernels and the other rewrites know the standard's operators, and steps that only read weights run
once, before all calls. The operations and their order stay the same, except that the input, the
residual and the bias of SkipLayerNormalization may be added in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    Rewrite,
    attributes_of,
    calls,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.ops import pooling, quantization
from sardonyx.ops.activation import Gelu
from sardonyx.ops.convolution import Conv
from sardonyx.ops.elementwise import Add, Mul
from sardonyx.ops.layout import Transpose
from sardonyx.ops.linalg import Gemm, MatMul
from sardonyx.ops.microsoft import activation as microsoft
from sardonyx.ops.microsoft import nchwc
from sardonyx.ops.microsoft import quantization as microsoft_quantization
from sardonyx.ops.microsoft.convolution import FusedConv
from sardonyx.ops.microsoft.fused_activation import activation_of_attributes, activation_of_params
from sardonyx.ops.microsoft.normalization import SkipLayerNormalization
from sardonyx.ops.microsoft.products import FusedGemm, FusedMatMul, TransposeMatMul
from sardonyx.ops.normalization import LayerNormalization


class _Parts:
    """The steps in place of one step; their results have its shape, or one of their own."""

    def __init__(self, passage: Passage, step: Step) -> None:
        self._passage = passage
        self._step = step
        self._steps: list[Step] = []

    def add(
        self,
        called: Called,
        *operands: Operand | None,
        spec: Spec | None = None,
        title: str | None = None,
        **attributes: Any,
    ) -> Operand:
        """Add a step, and return its result."""
        present = [operand for operand in operands if operand is not None]
        arguments = [None if operand is None else HOLE for operand in operands]
        of_result = spec or self._step.specs[0]
        part = self._passage.ahead_of(
            self._step, of_result, called, present, arguments, title=title, **attributes
        )
        self._steps.append(part)
        return part.results[0]

    def add_without_blocks(self, operand: Operand) -> Operand:
        spec = self._passage.spec(operand)
        return self.add(
            nchwc.without_blocks,
            operand,
            spec=spec,
            title="WithoutBlocks",
            block=nchwc.block_size(),
        )

    def add_in_blocks(self, operand: Operand) -> None:
        self.add(nchwc.in_blocks, operand, title="InBlocks", block=nchwc.block_size())

    def replacement(self) -> Replacement:
        """Return the steps; the last one has the result of the divided step."""
        *ahead, last = self._steps
        return [*ahead, replace(last, results=self._step.results, specs=self._step.specs)]


# -- products of matrices -------------------------------------------------------------------------


def _divide_product(passage: Passage, step: Step) -> Replacement:
    """Divide a product with transpositions and a factor."""
    op = FusedMatMul if calls(step, FusedMatMul) else TransposeMatMul
    values = parameters_of(step, op)
    if values.get("transBatchA") or values.get("transBatchB"):
        return None
    parts = _Parts(passage, step)
    factors = (
        _transposed(parts, passage.spec(values[name]), values[name], bool(values[f"trans{name}"]))
        for name in ("A", "B")
    )
    product = parts.add(MatMul, *factors)
    if values["alpha"] != 1:
        factor = np.asarray(values["alpha"]).astype(step.specs[0].dtype)
        parts.add(Mul, product, Embedded(factor))
    return parts.replacement()


def _transposed(parts: _Parts, spec: Spec, factor: Operand, transposes: bool) -> Operand:
    rank = len(spec.shape)
    if not transposes or rank < 2:
        return factor
    perm = (*range(rank - 2), rank - 1, rank - 2)
    result = Spec(tuple(spec.shape[axis] for axis in perm), spec.dtype)
    return parts.add(Transpose, factor, spec=result, perm=perm)


def _divide_gemm(passage: Passage, step: Step) -> Replacement:
    values = parameters_of(step, FusedGemm)
    names = ("alpha", "beta", "transA", "transB")
    parts = _Parts(passage, step)
    product = parts.add(Gemm, *map(values.get, "ABC"), **{name: values[name] for name in names})
    if values["activation"]:
        parameters = {name: values[f"activation_{name}"] for name in ("alpha", "beta", "gamma")}
        function, attributes = activation_of_attributes(values["activation"], **parameters)
        parts.add(function, product, title=values["activation"], **attributes)
    return parts.replacement()


# -- convolutions ---------------------------------------------------------------------------------


def _divide_convolution(passage: Passage, step: Step) -> Replacement:
    values = parameters_of(step, FusedConv)
    parts = _Parts(passage, step)
    _add_convolution(parts, values, *map(values.get, "XWBZ"))
    return parts.replacement()


def _divide_blocked_convolution(passage: Passage, step: Step) -> Replacement:
    """Divide a convolution whose arrays are in blocks, and whose weight is."""
    values = parameters_of(step, nchwc.Conv)
    source, weight, bias, addend = (values[name] for name in ("X", "W", "B", "Sum"))
    filters, group = passage.spec(weight), values["group"]
    parts = _Parts(passage, step)
    if not nchwc.reads_plain(filters, group):
        source = parts.add_without_blocks(source)
    if addend is not None:
        addend = parts.add_without_blocks(addend)
    weight = parts.add(
        nchwc.filters_without_blocks,
        weight,
        spec=filters,
        title="FiltersWithoutBlocks",
        block=nchwc.block_size(),
        of_inputs=nchwc.reads_blocks_of_inputs(filters, group),
    )
    result = _add_convolution(parts, values, source, weight, bias, addend)
    parts.add_in_blocks(result)
    return parts.replacement()


def _add_convolution(
    parts: _Parts,
    values: Mapping[str, Any],
    source: Operand | None,
    weight: Operand | None,
    bias: Operand | None,
    addend: Operand | None,
) -> Operand:
    """Add the convolution, the sum and the activation."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = parts.add(Conv, source, weight, bias, **{name: values[name] for name in names})
    if addend is not None:
        result = parts.add(Add, result, addend)
    if values["activation"]:
        params = values["activation_params"]
        function, attributes = activation_of_params(values["activation"], params)
        result = parts.add(function, result, title=values["activation"], **attributes)
    return result


# -- sums and what follows them -------------------------------------------------------------------


def _divide_normalization(passage: Passage, step: Step) -> Replacement:
    """Divide the normalization of a sum that nothing else reads; its bias joins a product."""
    if len(step.results) > 1 or step.specs[0].dtype not in (np.float32, np.float64):
        return None
    values = parameters_of(step, SkipLayerNormalization)
    parts, (one, other) = _Parts(passage, step), (values["input"], values["skip"])
    if passage.spec(other) == step.specs[0] and passage.producer(other, MatMul) is not None:
        one, other = other, one
    if values["bias"] is not None:
        one = parts.add(Add, one, values["bias"])
    total = parts.add(Add, one, other)
    scale, shift = values["gamma"], values["beta"]
    parts.add(LayerNormalization, total, scale, shift, epsilon=values["epsilon"])
    return parts.replacement()


def _divide_gelu(passage: Passage, step: Step) -> Replacement:
    """Divide an activation, with or without a bias before it."""
    source, *bias = step.operands
    if step.specs[0].dtype not in (np.float32, np.float64):
        return None
    parts = _Parts(passage, step)
    total = parts.add(Add, source, *bias) if bias else source
    parts.add(Gelu, total, approximate="tanh" if calls(step, microsoft.FastGelu) else "none")
    return parts.replacement()


# -- quantization ---------------------------------------------------------------------------------


def _restate_quantization(passage: Passage, step: Step) -> Replacement:
    """Turn a step of com.microsoft into the standard's, which has more attributes and types."""
    source, scale, *zero = step.operands
    op = quantization.DequantizeLinear
    if calls(step, microsoft_quantization.QuantizeLinear):
        op = quantization.QuantizeLinear
    parts = _Parts(passage, step)
    parts.add(op, source, scale, *zero, **attributes_of(step))
    return parts.replacement()


# -- pooling in blocks ----------------------------------------------------------------------------

_OF_CHANNELS: Mapping[Called, tuple[Called, Mapping[str, Any]]] = {
    nchwc.MaxPool: (pooling.MaxPool, {"outputs": 1}),
    nchwc.AveragePool: (pooling.AveragePool, {}),
    nchwc.GlobalMaxPool: (pooling.GlobalMaxPool, {}),
    nchwc.GlobalAveragePool: (pooling.GlobalAveragePool, {}),
}


def _divide_pool(passage: Passage, step: Step) -> Replacement:
    """Divide a pool in blocks, of which neighbours may take the blocks apart too."""
    pool, options = next(value for op, value in _OF_CHANNELS.items() if calls(step, op))
    (source,) = step.operands
    parts = _Parts(passage, step)
    plain = parts.add_without_blocks(source)
    result = parts.add(pool, plain, **attributes_of(step), **options)
    parts.add_in_blocks(result)
    return parts.replacement()


def _divide_reordering(passage: Passage, step: Step) -> Replacement:
    """Turn the end of the blocks into a step that may follow their beginning."""
    values = parameters_of(step, nchwc.ReorderOutput)
    if values["channels_last"] or values["channels"] != passage.spec(values["X"]).shape[1]:
        return None
    parts = _Parts(passage, step)
    parts.add_without_blocks(step.operands[0])
    return parts.replacement()


_DIVISIONS: Mapping[Called, Callable[[Passage, Step], Replacement]] = {
    FusedMatMul: _divide_product,
    TransposeMatMul: _divide_product,
    FusedGemm: _divide_gemm,
    FusedConv: _divide_convolution,
    nchwc.Conv: _divide_blocked_convolution,
    nchwc.ReorderOutput: _divide_reordering,
    SkipLayerNormalization: _divide_normalization,
    microsoft.Gelu: _divide_gelu,
    microsoft.BiasGelu: _divide_gelu,
    microsoft.FastGelu: _divide_gelu,
    microsoft_quantization.QuantizeLinear: _restate_quantization,
    microsoft_quantization.DequantizeLinear: _restate_quantization,
    **dict.fromkeys(_OF_CHANNELS, _divide_pool),
}
DIVISIONS: tuple[tuple[Rewrite, tuple[Called, ...]], ...] = tuple(
    (division, (op,)) for op, division in _DIVISIONS.items()
)


# -- blocks ---------------------------------------------------------------------------------------


def keep_without_blocks(passage: Passage, step: Step) -> Replacement:
    """Leave out blocks that the next step takes apart again."""
    blocked = passage.producer(step.operands[0], nchwc.in_blocks)
    source = None if blocked is None else blocked.operands[0]
    return source if isinstance(source, int) else None
