"""One layer of BERT-base's encoder, as exporters write it and as one would write it in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

BATCH, LENGTH, HIDDEN, HEADS, SIZE, INNER = 8, 128, 768, 12, 64, 3072
EPSILON = 1e-12

WEIGHTS: dict[str, tuple[int, ...]] = {
    **{f"{name}_weight": (HIDDEN, HIDDEN) for name in ("q", "k", "v", "out")},
    **{f"{name}_bias": (HIDDEN,) for name in ("q", "k", "v", "out", "down", "first", "second")},
    **{f"{name}_scale": (HIDDEN,) for name in ("first", "second")},
    "up_weight": (HIDDEN, INNER),
    "up_bias": (INNER,),
    "down_weight": (INNER, HIDDEN),
}
# The mask has numbers to add to the scores.
SHAPES = {"x": (BATCH, LENGTH, HIDDEN), "mask": (BATCH, 1, 1, LENGTH), **WEIGHTS}

NODES = f"""
    by_head = Constant <value_ints: ints = [{BATCH}, {LENGTH}, {HEADS}, {SIZE}]> ()
    joined = Constant <value_ints: ints = [{BATCH}, {LENGTH}, {HIDDEN}]> ()
    q1 = MatMul (x, q_weight) q2 = Add (q_bias, q1) q3 = Reshape (q2, by_head)
    q = Transpose <perm = [0, 2, 1, 3]> (q3)
    k1 = MatMul (x, k_weight) k2 = Add (k_bias, k1) k3 = Reshape (k2, by_head)
    k = Transpose <perm = [0, 2, 3, 1]> (k3)
    v1 = MatMul (x, v_weight) v2 = Add (v_bias, v1) v3 = Reshape (v2, by_head)
    v = Transpose <perm = [0, 2, 1, 3]> (v3)
    s1 = MatMul (q, k) eight = Constant <value_float: float = 8.0> () root = CastLike (eight, s1)
    s2 = Div (s1, root) s3 = Add (s2, mask) weights = Softmax <axis = -1> (s3)
    c1 = MatMul (weights, v) c2 = Transpose <perm = [0, 2, 1, 3]> (c1) c3 = Reshape (c2, joined)
    o1 = MatMul (c3, out_weight) o2 = Add (out_bias, o1) o3 = Add (o2, x)
    n = LayerNormalization <axis = -1, epsilon = {EPSILON}> (o3, first_scale, first_bias)
    u1 = MatMul (n, up_weight) u = Add (up_bias, u1)
    two = Constant <value_float: float = 1.4142135> () r = CastLike (two, u) g1 = Div (u, r)
    g2 = Erf (g1) one = Constant <value_float: float = 1.0> () i = CastLike (one, u)
    g3 = Add (g2, i) g4 = Mul (u, g3) half = Constant <value_float: float = 0.5> ()
    h = CastLike (half, u) g = Mul (g4, h)
    d1 = MatMul (g, down_weight) d2 = Add (down_bias, d1) d3 = Add (d2, n)
    y = LayerNormalization <axis = -1, epsilon = {EPSILON}> (d3, second_scale, second_bias)"""


def by_hand(x: Any, mask: Any, *arrays: Any) -> Any:
    weights = dict(zip(WEIGHTS, arrays, strict=True))

    def dense(x: Any, name: str) -> Any:
        return x @ weights[f"{name}_weight"] + weights[f"{name}_bias"]

    def normal(x: Any, name: str) -> Any:
        wide = x.astype(jnp.float32)
        centered = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centered).mean(-1, keepdims=True)
        y = (centered * jax.lax.rsqrt(variance + EPSILON)).astype(x.dtype)
        return y * weights[f"{name}_scale"] + weights[f"{name}_bias"]

    with jax.default_matmul_precision("highest"):
        q, k, v = (dense(x, name).reshape(BATCH, LENGTH, HEADS, SIZE) for name in "qkv")
        mixed = jax.nn.dot_product_attention(q, k, v, mask).reshape(x.shape)
        x = normal(dense(mixed, "out") + x, "first")
        return normal(dense(jax.nn.gelu(dense(x, "up"), approximate=False), "down") + x, "second")
