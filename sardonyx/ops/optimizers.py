"""Optimisers: each call updates any number of tensors and their state by one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT64
from sardonyx.ops.options import require_one_of

TRAINING = "ai.onnx.preview.training"


@op(domain=TRAINING)
def Adagrad(
    xp: Backend,
    R: Array,
    T: Array,
    *inputs: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    """Update tensors and their accumulated squared gradients."""
    rate = _number(xp, R) / (1 + _number(xp, T) * decay_factor)

    def step(X: Array, G: Array, H: Array) -> Sequence[Array]:
        H_new = H + xp.square(G)
        return X - _like(xp, rate, X) * G / (xp.sqrt(H_new) + epsilon), H_new

    return _stepped(step, inputs, 3, norm_coefficient)


@op(domain=TRAINING)
def Adam(
    xp: Backend,
    R: Array,
    T: Array,
    *inputs: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    """Update tensors and the averages of their gradients and of the squares of these."""
    rate, count = _number(xp, R), _number(xp, T)
    # Averages that start at zero are too small at first; correct them from the first update on.
    updates = xp.maximum(count, xp.ones_like(count))
    square_correction = 1 - xp.asarray(beta, dtype=count.dtype) ** updates
    correction = 1 - xp.asarray(alpha, dtype=count.dtype) ** updates
    rate = xp.where(count > 0, rate * xp.sqrt(square_correction) / correction, rate)

    def step(X: Array, G: Array, V: Array, H: Array) -> Sequence[Array]:
        V_new = alpha * V + (1 - alpha) * G
        H_new = beta * H + (1 - beta) * xp.square(G)
        X_new = X - _like(xp, rate, X) * V_new / (xp.sqrt(H_new) + epsilon)
        return (1 - norm_coefficient_post) * X_new, V_new, H_new

    return _stepped(step, inputs, 4, norm_coefficient)


@op(domain=TRAINING)
def Momentum(
    xp: Backend,
    R: Array,
    T: Array,
    *inputs: Array,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Array, ...]:
    """Update tensors and their momenta."""
    require_one_of("mode", mode, ("standard", "nesterov"))
    rate, count = _number(xp, R), _number(xp, T)
    factor = xp.where(count > 0, xp.full_like(count, beta), xp.ones_like(count))

    def step(X: Array, G: Array, V: Array) -> Sequence[Array]:
        V_new = alpha * V + _like(xp, factor, X) * G
        direction = V_new if mode == "standard" else G + alpha * V_new
        return X - _like(xp, rate, X) * direction, V_new

    return _stepped(step, inputs, 3, norm_coefficient)


def _number(xp: Backend, value: Array) -> Array:
    """Return the only element of a tensor in float64."""
    if value.size != 1:
        raise ValueError(
            f"R and T must have one element each, but one has shape {value.shape} with "
            f"{value.size} elements"
        )
    return xp.astype(xp.reshape(value, ()), xp.dtype(FLOAT64))


def _like(xp: Backend, number: Array, X: Array) -> Array:
    return xp.astype(number, X.dtype)


def _stepped(
    step: Callable[..., Sequence[Array]], inputs: Sequence[Array], kinds: int, decay: float
) -> tuple[Array, ...]:
    """Apply `step` to each tensor and its gradient, to which `decay` times the tensor is added.

    Inputs and results are grouped by kind, not by tensor.
    """
    count = len(inputs) // kinds
    if not count or count * kinds != len(inputs):
        raise ValueError(
            f"{len(inputs)} tensors cannot be split into {kinds} groups of equal length"
        )
    groups = [inputs[i * count : (i + 1) * count] for i in range(kinds)]
    for X, *others in zip(*groups, strict=True):
        if any(other.shape != X.shape for other in others):
            shapes = ", ".join(str(other.shape) for other in others)
            raise ValueError(
                f"a tensor has shape {X.shape}, but its gradient and state have shapes {shapes}"
            )
    results = [step(X, decay * X + G, *state) for X, G, *state in zip(*groups, strict=True)]
    return tuple(value for kind in zip(*results, strict=True) for value in kind)
