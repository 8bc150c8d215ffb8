"""BatchNormalization by weights alone: one product and one sum, of what is made of them once.

The same formula as the operator's own, so that on most backends not a bit differs; a compiler that
joins products and sums may differ in the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.graph.rewriting.rewriter import Passage, Replacement, ahead_of, calling, calls, given
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.normalization import (
    BatchNormalization,
    batch_normalization_training_if_it_has_outputs,
)
from sardonyx.ops.weight_ops import batch_factor, batch_shift, scaled_and_shifted


def normalize_with_prepared(passage: Passage, step: Step) -> Replacement:
    """Take what depends on the weights out of the normalisation."""
    bound = _inference(step)
    source = None if bound is None else passage.spec(bound["X"])
    if bound is None or source is None or not passage.can_add:
        return None
    scale, bias, mean, variance = (bound[name] for name in ("scale", "B", "mean", "var"))
    if not all(passage.is_fixed(o) for o in (scale, bias, mean, variance)):
        return None
    dtype = source.dtype if source.dtype == np.float64 else np.dtype(np.float32)
    channels = source.shape[1] if len(source.shape) > 1 else 1
    factor, shift = (passage.fresh((channels,), dtype) for _ in range(2))
    options = {"epsilon": bound["epsilon"], "dtype": dtype}
    return [
        ahead_of(step, factor, batch_factor, (scale, variance), "BatchFactor", **options),
        ahead_of(step, shift, batch_shift, (bias, mean, factor[0]), "BatchShift"),
        calling(step, scaled_and_shifted, (bound["X"], factor[0], shift[0]), "ScaleAndShift"),
    ]


def _inference(step: Step) -> dict[str, Any] | None:
    """The parameters, if the step normalises by given statistics, one for each channel."""
    if len(step.results) != 1:
        return None
    if calls(step, BatchNormalization):
        bound = given(step, BatchNormalization)
        bound |= {"mean": bound["input_mean"], "var": bound["input_var"]}
        return None if bound["training_mode"] else bound
    bound = given(step, batch_normalization_training_if_it_has_outputs)
    return bound if bound["spatial"] and bound["outputs"] == 1 else None
