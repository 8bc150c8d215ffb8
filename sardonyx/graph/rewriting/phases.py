"""All rewrites, in the order in which they are tried.

A rewrite is asked about each step that calls one of its functions, in the order in which they run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.attention import fuse_attention
from sardonyx.graph.rewriting.batch_normalization import normalize_with_prepared
from sardonyx.graph.rewriting.cancelling import (
    RESHAPES,
    drop_neutral,
    merge_casts,
    merge_reshapes,
    merge_transposes,
    undo_twice,
)
from sardonyx.graph.rewriting.epilogue import (
    ACTIVATIONS,
    FUSED,
    PRODUCTS,
    begin_epilogue,
    extend_by_activation,
    extend_by_sum,
    skip_padding,
)
from sardonyx.graph.rewriting.gelu import fuse_gelu
from sardonyx.graph.rewriting.into_weights import fold_into_weights
from sardonyx.graph.rewriting.normalization import fuse_normalization
from sardonyx.graph.rewriting.packing import use_packed_weight
from sardonyx.graph.rewriting.rewriter import Called, Known, Passage, Rewrite, Table, function_of
from sardonyx.graph.rewriting.scale_bias import fuse_scale_bias
from sardonyx.graph.rewriting.swish import fuse_swish
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.casting import Cast
from sardonyx.ops.convolution import Conv
from sardonyx.ops.elementwise import Add, Div, Mul, Neg, Not, Sub
from sardonyx.ops.layout import Transpose
from sardonyx.ops.linalg import MatMul
from sardonyx.ops.normalization import (
    BatchNormalization,
    batch_normalization_training_if_it_has_outputs,
)
from sardonyx.ops.weight_ops import scaled_and_shifted

# A rewrite, and the functions on whose steps it is tried.
Entry: TypeAlias = "tuple[Rewrite, tuple[Called, ...]]"

# Each phase goes once over the steps that the one before has left.
PHASES: tuple[tuple[Entry, ...], ...] = (
    (
        (drop_neutral, (Mul, Div, Add, Sub)),
        (
            normalize_with_prepared,
            (BatchNormalization, batch_normalization_training_if_it_has_outputs),
        ),
        (fold_into_weights, (Mul, Add, Div, Sub, scaled_and_shifted)),
        (fuse_normalization, (Mul, Add, Div)),
        (merge_transposes, (Transpose,)),
        (merge_reshapes, RESHAPES),
        (merge_casts, (Cast,)),
        (undo_twice, (Neg, Not)),
        (fuse_gelu, (Mul, Div)),
        (fuse_swish, (Mul, Div)),
    ),
    (
        (fuse_attention, (MatMul,)),
        (fuse_scale_bias, (Add,)),
    ),
)

# And these, where the backend has kernels for products and what follows them.
FUSING: tuple[tuple[Entry, ...], ...] = (
    (
        (begin_epilogue, PRODUCTS),
        (extend_by_activation, ACTIVATIONS),
        (extend_by_sum, (Add,)),
    ),
    ((use_packed_weight, FUSED),),
)

# And these last, where the backend has a faster form for weights that are finite.
BY_FINITE: tuple[tuple[Entry, ...], ...] = (((skip_padding, (Conv,)),),)


def rewrite(
    steps: Sequence[Step],
    results: Sequence[int],
    known: Known,
    weights: Collection[int] = (),
    backend: Backend | None = None,
    *,
    specs: MutableMapping[int, Spec] | None = None,
    fresh: Callable[[Spec], int] | None = None,
    is_finite: Callable[[int], bool] | None = None,
) -> Sequence[Step]:
    """The steps after every rewrite.

    `results` are the registers that are read after them; `known` the constants and `weights` the
    weights among the others. `specs` tells what is in each, and `fresh` gives new ones. `is_finite`
    tells of a weight whether it holds neither infinities nor NaN.
    """
    fuses = backend is not None and backend.fuses
    skips = backend is not None and backend.skips_padding
    tables = (*_TABLES, *(_FUSING_TABLES if fuses else ()), *(_BY_FINITE if skips else ()))
    for table in tables:
        passage = Passage(
            results,
            known,
            weights=weights,
            specs=specs,
            backend=backend,
            fresh=fresh,
            is_finite=is_finite,
        )
        steps = passage.rewritten(steps, table)
    return steps


def _table(entries: Iterable[Entry]) -> Table:
    table: dict[Any, list[Rewrite]] = {}
    for rewrite_, targets in entries:
        for target in targets:
            function = function_of(target)
            table.setdefault(function, []).append(rewrite_)
    return table


_TABLES = tuple(_table(entries) for entries in PHASES)
_BY_FINITE = tuple(_table(entries) for entries in BY_FINITE)
_FUSING_TABLES = tuple(_table(entries) for entries in FUSING)
