"""Values mixed by a softmax without guards, and the rows for which it has no weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from sardonyx.backends.jax import shard_map
from sardonyx.backends.jax.accelerators.scores import Products
from sardonyx.backends.operations.scores import Scoring

# Says of which rows the values are zeros, by their greatest scores.
IsLost = Callable[[Any], Any]


def is_lost_by(scoring: Scoring) -> IsLost | None:
    """Return what says which rows are zeros; None if the scoring wants NaN for all of them."""
    if scoring.zeros_for_nan:
        return _is_not_finite
    return _is_without_score if scoring.zeros_without_keys else None


def _is_without_score(top: Any) -> Any:
    return top == -jnp.inf


def _is_not_finite(top: Any) -> Any:
    """The weights beside an infinite score are NaN."""
    return ~jnp.isfinite(top)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def plainly_mixed(products: Products, is_lost: IsLost | None, scores: Any, v: Any) -> Any:
    """Return the values, mixed for each query; those of lost rows are NaN."""
    return products.mixed(_weights(scores), v).astype(v.dtype)


@plainly_mixed.defjvp
def _tangent(products: Products, is_lost: IsLost | None, primals: Any, tangents: Any) -> Any:
    """Lost rows have no derivatives: zeros times NaN would spread to the keys of other rows."""
    (scores, v), (change, v_change) = primals, tangents
    weights = _weights(scores)
    y = products.mixed(weights, v).astype(v.dtype)
    if is_lost is not None:
        lost = is_lost(jnp.max(scores, axis=-1, keepdims=True))
        weights = jnp.where(lost, jnp.zeros_like(weights), weights)
    change = weights * (change - jnp.sum(weights * change, axis=-1, keepdims=True))
    y_change = products.mixed(change, v) + products.mixed(weights, v_change)
    return y, y_change.astype(v.dtype)


def _weights(scores: Any) -> Any:
    e = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def with_zeros(y: Any, lost: Any) -> Any:
    return jnp.where(lost, jnp.zeros_like(y), y)


def lost_rows(y: Any, find: Callable[[], Any]) -> Any:
    """Return which rows `find` calls lost; it is computed only if there is a NaN in the values.

    Such a row is NaN in all columns, so that the first one tells.
    """
    column = lax.stop_gradient(y[..., :1])
    branches: list[Any] = [find, lambda: jnp.zeros(column.shape, bool)]
    if shard_map.is_manual():
        branches = shard_map.alike(*branches)
    return lax.cond(_has_nan(column), *branches)


@custom_vmap
def _has_nan(x: Any) -> Any:
    """Return whether there is a NaN, in any of the arrays that `vmap` calls one.

    If each had its own answer, JAX would compute both branches for all of them.
    """
    return jnp.any(jnp.isnan(x))


@_has_nan.def_vmap
def _has_nan_in_any(size: int, is_batched: Any, x: Any) -> tuple[Any, bool]:
    return _has_nan(x), False
