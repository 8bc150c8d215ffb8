"""Attention of cuDNN, which holds no scores in memory, for programs on CUDA."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH
from sardonyx.backends.jax.accelerators.scores import without_nan
from sardonyx.backends.operations.scores import Scoring
from sardonyx.errors import BackendUnavailable

WITHOUT_CUDNN = "compiled without cuDNN's attention, which was refused"

# What cuDNN computes on all GPUs since Ampere; later ones have more.
LARGEST_SIZE = 128
SIZES = 8
# Without lengths, its gradients of some versions are NaN beside a last block of fewer keys.
WHOLE_BLOCK = 128
# How its calls begin in lowered programs.
_CALLS = "__cudnn$fmha"

Implementation: TypeAlias = Literal["cudnn", "xla"]


def is_for(q: Any, k: Any, v: Any, scoring: Scoring) -> bool:
    """Whether cuDNN computes this attention with the same results.

    A mask of numbers or booleans is not among it: cuDNN adds such numbers in 16 bits, and differs
    where they hide all keys. Neither is a single query, whose scores take little memory anyway.
    """
    reach, (_, heads, queries, size), (_, shared, keys, _) = scoring.reach, q.shape, k.shape
    if reach is None or scoring.softcap or scoring.sink is not None:
        return False
    # `jax.export` has symbols for sizes that stay open.
    if not all(isinstance(length, int) for length in (*q.shape, *k.shape, *v.shape)):
        return False
    # Kernels scale after they have found the greatest product.
    if not 0 < scoring.scale < math.inf or q.dtype not in (jnp.float16, jnp.bfloat16):
        return False
    if q.shape[0] != k.shape[0] or k.shape != v.shape or size != k.shape[3] or heads % shared:
        return False
    if min(queries, keys) < 2 or (reach.is_causal and queries != keys):
        return False
    return bool(size <= LARGEST_SIZE and size % SIZES == 0)


def attended(
    q: Any, k: Any, v: Any, scoring: Scoring, implementation: Implementation = "cudnn"
) -> Any:
    """Return the values that each query reads, of an attention that cuDNN computes.

    JAX's other implementation understands the same arguments, on every platform.
    """
    reach: Any = scoring.reach
    queries, keys = q.shape[2], k.shape[2]
    lengths = reach.lengths
    if lengths is not None:
        lengths = jnp.clip(jnp.reshape(lengths, (-1,)), 0, keys).astype(jnp.int32)
        # cuDNN before 9.25 returns NaN for a sample without keys.
        counted = jnp.maximum(lengths, 1)
    elif queries % WHOLE_BLOCK or keys % WHOLE_BLOCK:
        counted = jnp.full(q.shape[:1], keys, jnp.int32)
    else:
        counted = None
    heads_inside = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    try:
        y = jax.nn.dot_product_attention(
            *heads_inside,
            scale=scoring.scale,
            is_causal=reach.is_causal,
            key_value_seq_lengths=counted,
            implementation=implementation,
        )
    except RuntimeError as error:
        raise BackendUnavailable(
            f"{SWITCH}=1 asks for attention by cuDNN, which JAX cannot use here ({error}). Install "
            "it with pip install 'sardonyx[cuda]', or unset that variable."
        ) from error
    y = jnp.swapaxes(y, 1, 2)
    if lengths is not None:
        y = jnp.where(jnp.reshape(lengths, (-1, 1, 1, 1)) > 0, y, jnp.zeros_like(y))
    return without_nan(y, scoring)


def is_in(lowered: Any) -> bool:
    """Whether a lowered program calls cuDNN's attention."""
    return _CALLS in lowered.as_text()
