"""Softmax and attention as ops, and as users of JAX write them; another process imports these."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.ops.activation import LogSoftmax, Softmax
from sardonyx.ops.attention import Attention
from sardonyx.ops.definition import Outputs
from sardonyx.ops.microsoft.attention import attended
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention

# With the forms for every platform.
XP = PortableBackend()
LONG = 2**15


def softmax(x: Any) -> Any:
    return Softmax(XP, x)


def log_softmax(x: Any) -> Any:
    return LogSoftmax(XP, x)


def softmax_of_jax(x: Any) -> Any:
    return jax.nn.softmax(x)


def log_softmax_of_jax(x: Any) -> Any:
    return jax.nn.log_softmax(x)


def attention(q: Any, k: Any, v: Any) -> Any:
    return Attention(XP, q, k, v, outputs=Outputs(1))[0]


def causal(q: Any, k: Any, v: Any) -> Any:
    return Attention(XP, q, k, v, is_causal=1, outputs=Outputs(1))[0]


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return Attention(XP, q, k, v, bias, outputs=Outputs(1))[0]


def gradients(q: Any, k: Any, v: Any) -> Any:
    def total(*arrays: Any) -> Any:
        return jnp.sum(causal(*arrays).astype(jnp.float32))

    return jax.grad(total, argnums=(0, 1, 2))(q, k, v)


def attention_of_exporters(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return XP.attention(q, k, v, bias, scale=0.125)


def causal_of_microsoft(q: Any, k: Any, v: Any) -> Any:
    masks = None, None, -1e4
    return attended(XP, (q, k, v), (None, None, None), masks, is_causal=1, scale=0.125)[0]


def prompt(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    return _grouped(q, k, v, None, None, lengths, q.shape[1])


def decoded(q: Any, k: Any, v: Any, keys: Any, values: Any, lengths: Any) -> Any:
    return _grouped(q, k, v, keys, values, lengths, LONG)


def _grouped(*inputs: Any) -> Any:
    return GroupQueryAttention(XP, *inputs, num_heads=8, kv_num_heads=2, outputs=Outputs(3))


def attention_of_jax(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
    """For arrays of (batch, length, heads, size)."""
    precision = "highest" if q.dtype == jnp.float32 else "default"
    with jax.default_matmul_precision(precision):
        return jax.nn.dot_product_attention(q, k, v, bias)


def causal_of_jax(q: Any, k: Any, v: Any) -> Any:
    precision = "highest" if q.dtype == jnp.float32 else "default"
    with jax.default_matmul_precision(precision):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)
