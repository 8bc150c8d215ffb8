"""BatchNormalization with statistics among the weights: one product and one sum per call.

The formula is the operator's own, so that most backends give the same bits; a compiler that joins
products and sums may change the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calls, instead_of, parameters_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.normalization import (
    BatchNormalization,
    batch_normalization_training_if_it_has_outputs,
)
from sardonyx.ops.weight_ops import batch_factor, batch_shift, scaled_and_shifted


def normalize_with_prepared(passage: Passage, step: Step) -> Replacement:
    """Compute factor and shift of the normalization once, from the weights."""
    values = _inference(step)
    if values is None:
        return None
    x, scale, bias, mean, variance = (values[name] for name in ("X", "scale", "B", "mean", "var"))
    if not all(map(passage.is_fixed, (scale, bias, mean, variance))):
        return None
    shape, dtype = passage.spec(x)
    dtype = dtype if dtype == np.float64 else np.dtype(np.float32)
    channels = Spec((shape[1] if len(shape) > 1 else 1,), dtype)
    factor = passage.ahead_of(
        step,
        channels,
        batch_factor,
        (scale, variance),
        title="BatchFactor",
        epsilon=values["epsilon"],
        dtype=dtype,
    )
    of_shift = (bias, mean, *factor.results)
    shift = passage.ahead_of(step, channels, batch_shift, of_shift, title="BatchShift")
    operands = (x, *factor.results, *shift.results)
    return [factor, shift, instead_of(step, scaled_and_shifted, operands, title="ScaleAndShift")]


def _inference(step: Step) -> dict[str, Any] | None:
    """The parameters, if the statistics are inputs, one of each for every channel."""
    if len(step.results) != 1:
        return None
    if calls(step, BatchNormalization):
        values = parameters_of(step, BatchNormalization)
        values |= {"mean": values["input_mean"], "var": values["input_var"]}
        return None if values["training_mode"] else values
    values = parameters_of(step, batch_normalization_training_if_it_has_outputs)
    return values if values["spatial"] and values["outputs"] == 1 else None
