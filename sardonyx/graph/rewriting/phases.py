"""All rewrites, in the order in which they are tried.

A rewrite is asked about each step that calls one of its functions, in the order in which they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from sardonyx.graph.rewriting.attention import fuse_attention
from sardonyx.graph.rewriting.batch_normalization import normalize_with_prepared
from sardonyx.graph.rewriting.cancelling import drop_neutral, merge_casts
from sardonyx.graph.rewriting.chaining import CHAINED, join_products
from sardonyx.graph.rewriting.channels_last import keep_channels_last
from sardonyx.graph.rewriting.epilogue import (
    ACTIVATIONS,
    FUSED,
    PRODUCTS,
    begin_epilogue,
    extend_by_activation,
    extend_by_sum,
    skip_padding,
)
from sardonyx.graph.rewriting.few_bits import unpack_experts_once, unpack_weight_once
from sardonyx.graph.rewriting.filters import turn_filters
from sardonyx.graph.rewriting.float8_products import (
    PRODUCTS_OF_DEQUANTIZED,
    multiply_dequantized_float8,
    multiply_float8,
)
from sardonyx.graph.rewriting.fused_nodes import DIVISIONS, keep_without_blocks
from sardonyx.graph.rewriting.gelu import fuse_gelu
from sardonyx.graph.rewriting.integer_weights import WITH_INTEGER_WEIGHTS, prepare_integer_weight
from sardonyx.graph.rewriting.into_weights import fold_into_weights
from sardonyx.graph.rewriting.normalization import fuse_normalization
from sardonyx.graph.rewriting.packing import use_packed_weight
from sardonyx.graph.rewriting.pads import pad_within_convolution
from sardonyx.graph.rewriting.quantize_dequantize import dequantize_at_once
from sardonyx.graph.rewriting.rewriter import Called, Passage, Rewrite, Table, function_of
from sardonyx.graph.rewriting.softmax import fuse_softmax_or_zero
from sardonyx.graph.rewriting.swish import fuse_swish
from sardonyx.graph.rewriting.zero_points import drop_zero_point
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.steps import Step, without_dead_steps
from sardonyx.ops.casting import Cast
from sardonyx.ops.convolution import Conv
from sardonyx.ops.elementwise import Add, Div, Mul, Sub, Where
from sardonyx.ops.fused_products import convolution_and_more
from sardonyx.ops.linalg import MatMul
from sardonyx.ops.microsoft.matmul_float8 import GemmFloat8
from sardonyx.ops.microsoft.nchwc import without_blocks
from sardonyx.ops.microsoft.quantized_experts import QMoE
from sardonyx.ops.microsoft.unpacking import UNPACKING
from sardonyx.ops.normalization import (
    BatchNormalization,
    batch_normalization_training_if_it_has_outputs,
)
from sardonyx.ops.quantization import DequantizeLinear
from sardonyx.ops.weight_ops import scaled_and_shifted

# A rewrite, and the functions on whose steps it is tried.
Entry: TypeAlias = "tuple[Rewrite, tuple[Called, ...]]"


def rewritten(
    segment: TracedSegment, recorder: Recorder, *, knows_weights: bool, single_rows: bool = False
) -> Sequence[Step]:
    """The segment's steps after every rewrite, if the model allows any.

    `knows_weights` says that weights are the same at each call, so that rewrites may combine them.
    With `single_rows` the backend's kernels multiply single rows, too, as they do several.
    """
    steps, backend = segment.steps, recorder.backend
    if not recorder.rewrites:
        return without_dead_steps(steps, segment.results)
    by_finite = _BY_FINITE if backend.skips_padding else ()
    with_columns = _WITH_COLUMNS if backend.prepares_columns else ()
    start = partial(
        Passage,
        results=segment.results,
        recorder=recorder,
        knows_weights=knows_weights,
        single_rows=single_rows,
    )
    passing = partial(_passed, start)
    steps = passing(steps, (*_EVERYWHERE, *with_columns))
    # Only then: the backend loads its kernels, or tries them out.
    with_kernels = not _MULTIPLYING.isdisjoint(_called(steps)) and backend.fuses
    return passing(steps, (*(_WITH_KERNELS if with_kernels else ()), *by_finite))


def _passed(
    start: Callable[[Sequence[Step]], Passage], steps: Sequence[Step], tables: Sequence[Table]
) -> Sequence[Step]:
    for table in tables:
        if not table.keys().isdisjoint(_called(steps)):
            steps = start(steps).rewritten(table)
    return steps


def _called(steps: Sequence[Step]) -> set[Any]:
    return {step.call.function for step in steps if isinstance(step.call, OpCall)}


def _table(*entries: Entry) -> Table:
    """One phase, which goes once over the steps that the phase before has left."""
    table: dict[Any, list[Rewrite]] = {}
    for rewrite, targets in entries:
        for target in targets:
            table.setdefault(function_of(target), []).append(rewrite)
    return table


_BATCH_NORMALIZATIONS = (BatchNormalization, batch_normalization_training_if_it_has_outputs)

_EVERYWHERE = (
    _table(*DIVISIONS),
    _table(
        (keep_without_blocks, (without_blocks,)),
        (unpack_weight_once, tuple(UNPACKING)),
        (unpack_experts_once, (QMoE,)),
        (drop_neutral, (Mul, Div, Add, Sub)),
        (normalize_with_prepared, _BATCH_NORMALIZATIONS),
        (fold_into_weights, (Mul, Add, Div, Sub, scaled_and_shifted)),
        (fuse_normalization, (Mul, Add, Div)),
        (merge_casts, (Cast,)),
        (pad_within_convolution, (Conv,)),
        (drop_zero_point, (DequantizeLinear,)),
        (fuse_gelu, (Mul, Div)),
        (fuse_swish, (Mul, Div)),
    ),
    _table((fuse_attention, (MatMul,))),
)

# Then, if the backend's products of 8-bit types read their right side in a form of its own.
_WITH_COLUMNS = (
    _table(
        (prepare_integer_weight, WITH_INTEGER_WEIGHTS),
        (multiply_float8, (GemmFloat8,)),
        (multiply_dequantized_float8, PRODUCTS_OF_DEQUANTIZED),
    ),
)

# Then, if the backend has kernels for products and what follows them.
_WITH_KERNELS = (
    _table(
        (begin_epilogue, PRODUCTS),
        (extend_by_activation, ACTIVATIONS),
        (extend_by_sum, (Add,)),
        (fuse_softmax_or_zero, (Where,)),
        (dequantize_at_once, (DequantizeLinear,)),
    ),
    _table((keep_channels_last, (convolution_and_more,))),
    _table((use_packed_weight, FUSED)),
    _table((join_products, CHAINED)),
)

# The functions that they begin with.
_MULTIPLYING = {function_of(target) for target in (*PRODUCTS, *FUSED)}

# Last, if the backend has a faster form for weights that are finite.
_BY_FINITE = (_table((skip_padding, (Conv,))), _table((turn_filters, (convolution_and_more,))))
