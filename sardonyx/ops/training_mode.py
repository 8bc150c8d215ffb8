"""Operators in training mode, regardless of the attributes of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import random
from sardonyx.ops.definition import (
    Ints,
    Key,
    Op,
    OutputsRead,
    Parameter,
    Statistic,
    Value,
    Walk,
    op,
)
from sardonyx.ops.normalization import batch_normalization_with_is_test


@op
def BatchNormalization(
    walk: Walk,
    X: Value,
    scale: Value,
    B: Value,
    mean: Statistic,
    var: Statistic,
    *,
    consumed_inputs: Ints | None = None,
    is_test: int = 0,
    training_mode: int = 0,
    **others: Annotated[Any, batch_normalization_with_is_test],
) -> Value:
    """Normalise by the statistics of the batch, and update the running mean and variance."""
    results = walk.apply(batch_normalization_with_is_test, X, scale, B, mean, var, **others)
    walk.renew(mean, results[1])
    walk.renew(var, results[2])
    return results


@op
def Dropout(
    xp: Backend,
    data: Array,
    ratio: float = 0.5,
    training_mode: bool = False,
    *,
    consumed_inputs: Ints | None = None,
    is_test: int = 0,
    seed: int | None = None,
    outputs: OutputsRead,
    key: Key,
) -> Array | tuple[Array, Array]:
    """Draw a new mask for each key, even if the node has a seed."""
    return random.Dropout(xp, data, ratio, True, outputs=outputs, key=key)


IN_TRAINING: Mapping[tuple[str, str], Op[Any]] = MappingProxyType(
    {(op.domain, op.name): op for op in (BatchNormalization, Dropout)}
)


def is_statistic(parameter: Parameter) -> bool:
    """Return whether training updates this parameter without gradients."""
    return bool(parameter.type == Statistic)
