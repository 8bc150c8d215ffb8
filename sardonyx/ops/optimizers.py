"""Optimisers: each call is one step for any number of tensors and what is kept about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op

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
    """Tensors, gradients and accumulated squared gradients to new tensors and accumulated ones."""
    rate = _number(xp, R) / (1 + _number(xp, T) * decay_factor)

    def step(X: Array, G: Array, H: Array) -> Sequence[Array]:
        regularized = norm_coefficient * X + G
        H_new = H + xp.square(regularized)
        return X - _like(xp, rate, X) * regularized / (xp.sqrt(H_new) + epsilon), H_new

    return _stepped(step, inputs, 3)


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
    """Tensors, gradients, averages of them and of their squares; new tensors and averages."""
    rate, count = _number(xp, R), _number(xp, T)
    # Averages that began at zero are too small at first, and before the first update are nothing.
    updates = xp.maximum(count, xp.ones_like(count))
    lacking_square = 1 - xp.asarray(beta, dtype=count.dtype) ** updates
    lacking = 1 - xp.asarray(alpha, dtype=count.dtype) ** updates
    rate = xp.where(count > 0, rate * xp.sqrt(lacking_square) / lacking, rate)

    def step(X: Array, G: Array, V: Array, H: Array) -> Sequence[Array]:
        regularized = norm_coefficient * X + G
        V_new = alpha * V + (1 - alpha) * regularized
        H_new = beta * H + (1 - beta) * xp.square(regularized)
        X_new = X - _like(xp, rate, X) * V_new / (xp.sqrt(H_new) + epsilon)
        return (1 - norm_coefficient_post) * X_new, V_new, H_new

    return _stepped(step, inputs, 4)


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
    """Tensors, gradients and momenta to new tensors and momenta."""
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode is {mode!r}, but must be standard or nesterov")
    rate, count = _number(xp, R), _number(xp, T)
    factor = xp.where(count > 0, xp.full_like(count, beta), xp.ones_like(count))

    def step(X: Array, G: Array, V: Array) -> Sequence[Array]:
        regularized = norm_coefficient * X + G
        V_new = alpha * V + _like(xp, factor, X) * regularized
        direction = V_new if mode == "standard" else regularized + alpha * V_new
        return X - _like(xp, rate, X) * direction, V_new

    return _stepped(step, inputs, 3)


def _number(xp: Backend, value: Array) -> Array:
    """The only element of a tensor, in float64."""
    if value.size != 1:
        raise ValueError(f"shape {value.shape} has {value.size} elements; R and T have one each")
    return xp.astype(xp.reshape(value, ()), xp.dtype(np.dtype(np.float64)))


def _like(xp: Backend, number: Array, X: Array) -> Array:
    return xp.astype(number, X.dtype)


def _stepped(
    step: Callable[..., Sequence[Array]], inputs: Sequence[Array], kinds: int
) -> tuple[Array, ...]:
    """`step` for each tensor. Inputs and results come kind by kind, each for all tensors."""
    count = len(inputs) // kinds
    if not count or count * kinds != len(inputs):
        raise ValueError(f"{len(inputs)} tensors cannot be split into {kinds} groups of one length")
    groups = [inputs[i * count : (i + 1) * count] for i in range(kinds)]
    for X, *others in zip(*groups, strict=True):
        if any(other.shape != X.shape for other in others):
            shapes = ", ".join(str(other.shape) for other in others)
            raise ValueError(f"a tensor of shape {X.shape} goes with others of shapes {shapes}")
    results = [step(*each) for each in zip(*groups, strict=True)]
    return tuple(value for kind in zip(*results, strict=True) for value in kind)
