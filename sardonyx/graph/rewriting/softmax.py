"""The softmax of attention as torch writes it: a row that may see no key gets zeros."""

from __future__ import annotations

from sardonyx.graph.rewriting.rewriter import Passage, Replacement, instead_of, parameters_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.activation import Softmax, softmax_or_zero
from sardonyx.ops.elementwise import IsNaN, Where


def fuse_softmax_or_zero(passage: Passage, step: Step) -> Replacement:
    """Take the softmax along the last axis, and zeros in place of NaN, as one step."""
    condition, zero, weights = parameters_of(step, Where).values()
    is_nan, softmax = passage.producer(condition, IsNaN), passage.producer(weights, Softmax)
    if is_nan is None or softmax is None or is_nan.operands[0] != weights:
        return None
    spec = softmax.specs[0]
    is_along_last = parameters_of(softmax, Softmax)["axis"] in (-1, len(spec.shape) - 1)
    is_whole = spec == step.specs[0] and spec.shape[-1] > 0
    is_alone = passage.is_closed((is_nan, softmax), step)
    if is_along_last and is_whole and is_alone and passage.scalar(zero) == 0:
        return [instead_of(step, softmax_or_zero, softmax.operands[:1], title="SoftmaxOrZero")]
    return None
