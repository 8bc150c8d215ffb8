"""Losses of classification: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import LogSoftmax
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import INT64
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide


@op
def NegativeLogLikelihoodLoss(
    xp: Backend,
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    _require_classes(xp, "target", target, input, ignore_index)
    loss = _loss(xp, wide(xp, input), target, weight, ignore_index, reduction)
    return xp.astype(loss, input.dtype)


@op
def SoftmaxCrossEntropyLoss(
    xp: Backend,
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    if scores.ndim < 2:
        raise ValueError(
            f"scores have shape {scores.shape}, but need a second axis for the classes"
        )
    _require_classes(xp, "labels", labels, scores, ignore_index)
    log_prob = LogSoftmax(xp, wide(xp, scores), axis=1)
    output = _loss(xp, log_prob, labels, weights, ignore_index, reduction)
    return xp.astype(output, scores.dtype), xp.astype(log_prob, scores.dtype)


def _loss(
    xp: Backend,
    log_prob: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int | None,
    reduction: str,
) -> Array:
    """Return the reduced loss; an ignored class has loss and weight 0, and so counts nowhere."""
    _check(log_prob, target, weight, reduction)
    target = xp.astype(target, xp.dtype(INT64))
    counts = None if ignore_index is None else xp.not_equal(target, ignore_index)
    # An ignored class need not exist; a negative class must not count from the end.
    target = target if counts is None else xp.where(counts, target, 0)
    target = xp.maximum(target, 0)
    chosen = xp.take_along_axis(log_prob, xp.expand_dims(target, axis=1), axis=1)
    loss = _only(xp, counts, -xp.squeeze(chosen, axis=1))
    weights = xp.ones_like(loss)
    if weight is not None:
        each = xp.take(wide(xp, weight), xp.reshape(target, (-1,)), axis=0)
        weights = xp.reshape(each, target.shape)
        loss = loss * weights
    if reduction == "none":
        return loss
    total = xp.sum(loss)
    return total if reduction == "sum" else total / xp.sum(_only(xp, counts, weights))


def _require_classes(
    xp: Backend, name: str, classes: Array, scores: Array, ignore_index: int | None
) -> None:
    if scores.ndim > 1 and scores.shape[1]:
        xp.require(classes, Within(name, 0, scores.shape[1] - 1, exempt=ignore_index))


def _check(log_prob: Array, target: Array, weight: Array | None, reduction: str) -> None:
    require_one_of("reduction", reduction, ("none", "sum", "mean"))
    shape = log_prob.shape
    if len(shape) < 2 or target.shape != (shape[0], *shape[2:]):
        raise ValueError(
            f"classes of shape {target.shape} do not fit predictions of shape {shape}: they must "
            "have the same axes without the second"
        )
    if not shape[1]:
        raise ValueError(f"predictions of shape {shape} have no classes on their second axis")
    if weight is not None:
        require_shape("weight", weight, (shape[1],))


def _only(xp: Backend, counts: Array | None, x: Array) -> Array:
    return x if counts is None else xp.where(counts, x, xp.zeros_like(x))
