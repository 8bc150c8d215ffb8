"""Attention as ops that may ask for cuDNN, and its gradients; another process imports these."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sardonyx.backends.jax.inside import InsideBackend
from sardonyx.ops.attention import Attention
from sardonyx.ops.definition import Outputs
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention

# As functions of `to_jax` are traced.
XP = InsideBackend()


def causal(q: Any, k: Any, v: Any) -> Any:
    return Attention(XP, q, k, v, is_causal=1, outputs=Outputs(1))[0]


def in_samples(q: Any, k: Any, v: Any) -> Any:
    return jax.vmap(causal)(q, k, v)


def gradients(q: Any, k: Any, v: Any) -> Any:
    def total(*arrays: Any) -> Any:
        return jnp.sum(causal(*arrays).astype(jnp.float32))

    return jax.grad(total, argnums=(0, 1, 2))(q, k, v)


def prompt(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """Of arrays of (batch, length, heads * 64)."""
    heads = {"num_heads": q.shape[2] // 64, "kv_num_heads": k.shape[2] // 64}
    inputs = q, k, v, None, None, lengths, q.shape[1]
    return GroupQueryAttention(XP, *inputs, **heads, outputs=Outputs(3))
