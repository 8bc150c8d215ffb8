"""The parts of a softmax that XLA keeps in one kernel with the reductions beside them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


@jax.custom_jvp
def below_top(x: Any, top: Any) -> Any:
    """`x - top`, where `top` is the maximum of `x`; 0 where they are equal and finite.

    The difference of `top` and itself is NaN where it is infinite, and no compiler can join it with
    the product that computes `x`. A test for infinities would cost XLA:GPU the one kernel.
    """
    return jnp.where(x == top, top - top, x - top)


@below_top.defjvp
def _tangent(primals: Any, tangents: Any) -> Any:
    # Results do not depend on which number is subtracted from all scores.
    return below_top(*primals), tangents[0]


def nonzero_total(total: Any) -> Any:
    """`total`, or the least number where it is 0: a sum of exponentials that are not negative."""
    return jnp.maximum(total, jnp.finfo(total.dtype).tiny)
