"""ViT-B/16, BERT-base and GPT-2, by hand in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import HEAD_SIZE, HEADS, LAYERS

WIDTH = HEADS * HEAD_SIZE
PATCH = 16

Weights = Mapping[str, Any]


def vit_weights(state: Weights) -> dict[str, Any]:
    made: dict[str, Any] = {}
    patches = state["network.vit.embeddings.patch_embeddings.projection.weight"]
    made["patches"] = (
        patches.transpose(2, 3, 1, 0).reshape(-1, WIDTH),
        state["network.vit.embeddings.patch_embeddings.projection.bias"],
    )
    made["class"] = state["network.vit.embeddings.cls_token"]
    made["positions"] = state["network.vit.embeddings.position_embeddings"]
    made["classifier"] = _linear(state, "network.classifier")
    made["norm"] = _norm(state, "network.vit.layernorm")
    for i in range(LAYERS):
        layer = f"network.vit.layers.{i}"
        attention = f"{layer}.attention"
        made[f"{i}.before"] = _norm(state, f"{layer}.layernorm_before")
        made[f"{i}.after"] = _norm(state, f"{layer}.layernorm_after")
        made[f"{i}.qkv"] = _joined(state, *(f"{attention}.{part}_proj" for part in "qkv"))
        made[f"{i}.out"] = _linear(state, f"{attention}.o_proj")
        made[f"{i}.wide"] = _linear(state, f"{layer}.mlp.fc1")
        made[f"{i}.narrow"] = _linear(state, f"{layer}.mlp.fc2")
    return made


def vit_b16(w: Weights, pixels: Any) -> Any:
    batch, channels, height, width = pixels.shape
    cut = pixels.reshape(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    cut = cut.transpose(0, 2, 4, 3, 5, 1).reshape(batch, -1, PATCH * PATCH * channels)
    first = jnp.broadcast_to(w["class"], (batch, 1, WIDTH))
    x = jnp.concatenate([first, _dense(cut, w["patches"])], 1) + w["positions"]
    for i in range(LAYERS):
        q, k, v = _heads(_dense(_normalised(x, w[f"{i}.before"], 1e-12), w[f"{i}.qkv"]))
        x = x + _dense(_attended(q, k, v), w[f"{i}.out"])
        y = _normalised(x, w[f"{i}.after"], 1e-12)
        y = jax.nn.gelu(_dense(y, w[f"{i}.wide"]), approximate=False)
        x = x + _dense(y, w[f"{i}.narrow"])
    return _dense(_normalised(x[:, 0], w["norm"], 1e-12), w["classifier"])


def bert_weights(state: Weights) -> dict[str, Any]:
    made: dict[str, Any] = {
        name: state[f"network.embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    }
    made["norm"] = _norm(state, "network.embeddings.LayerNorm")
    made["pooler"] = _linear(state, "network.pooler.dense")
    for i in range(LAYERS):
        layer = f"network.encoder.layer.{i}"
        parts = (f"{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        made[f"{i}.qkv"] = _joined(state, *parts)
        made[f"{i}.out"] = _linear(state, f"{layer}.attention.output.dense")
        made[f"{i}.after"] = _norm(state, f"{layer}.attention.output.LayerNorm")
        made[f"{i}.wide"] = _linear(state, f"{layer}.intermediate.dense")
        made[f"{i}.narrow"] = _linear(state, f"{layer}.output.dense")
        made[f"{i}.last"] = _norm(state, f"{layer}.output.LayerNorm")
    return made


def bert_base(w: Weights, ids: Any, mask: Any, kinds: Any) -> tuple[Any, Any]:
    x = w["word"][ids] + w["token_type"][kinds] + w["position"][: ids.shape[1]]
    x = _normalised(x, w["norm"], 1e-12)
    bias = jnp.where(mask[:, None, None, :] != 0, 0.0, np.finfo(np.float32).min)
    for i in range(LAYERS):
        q, k, v = _heads(_dense(x, w[f"{i}.qkv"]))
        x = _normalised(x + _dense(_attended(q, k, v, bias), w[f"{i}.out"]), w[f"{i}.after"], 1e-12)
        y = jax.nn.gelu(_dense(x, w[f"{i}.wide"]), approximate=False)
        x = _normalised(x + _dense(y, w[f"{i}.narrow"]), w[f"{i}.last"], 1e-12)
    return x, jnp.tanh(_dense(x[:, 0], w["pooler"]))


def gpt2_weights(state: Weights) -> dict[str, Any]:
    made: dict[str, Any] = {
        "words": state["network.transformer.wte.weight"],
        "positions": state["network.transformer.wpe.weight"],
        "norm": _norm(state, "network.transformer.ln_f"),
    }
    for i in range(LAYERS):
        layer = f"network.transformer.h.{i}"
        made[f"{i}.before"] = _norm(state, f"{layer}.ln_1")
        made[f"{i}.after"] = _norm(state, f"{layer}.ln_2")
        # GPT-2 keeps its matrices as they are multiplied, (in, out).
        made[f"{i}.qkv"] = _norm(state, f"{layer}.attn.c_attn")
        made[f"{i}.out"] = _norm(state, f"{layer}.attn.c_proj")
        made[f"{i}.wide"] = _norm(state, f"{layer}.mlp.c_fc")
        made[f"{i}.narrow"] = _norm(state, f"{layer}.mlp.c_proj")
    return made


def gpt2(w: Weights, ids: Any, *past: Any) -> tuple[Any, ...]:
    """Logits, then keys and values, grown by those of the new tokens."""
    before = past[0].shape[2] if past else 0
    tokens = ids.shape[1]
    x = w["words"][ids] + w["positions"][before : before + tokens]
    sees = np.arange(before + tokens) <= before + np.arange(tokens)[:, None]
    bias = np.where(sees, np.float32(0), np.finfo(np.float32).min)
    present = []
    for i in range(LAYERS):
        q, k, v = _heads(_dense(_normalised(x, w[f"{i}.before"], 1e-5), w[f"{i}.qkv"]))
        if past:
            k = jnp.concatenate([past[2 * i], k], 2)
            v = jnp.concatenate([past[2 * i + 1], v], 2)
        present += [k, v]
        x = x + _dense(_attended(q, k, v, bias), w[f"{i}.out"])
        y = _dense(_normalised(x, w[f"{i}.after"], 1e-5), w[f"{i}.wide"])
        x = x + _dense(jax.nn.gelu(y, approximate=True), w[f"{i}.narrow"])
    return _normalised(x, w["norm"], 1e-5) @ w["words"].T, *present


def _heads(qkv: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values: (batch, heads, tokens, size)."""
    batch, tokens, _ = qkv.shape
    split = qkv.reshape(batch, tokens, 3, HEADS, HEAD_SIZE).transpose(2, 0, 3, 1, 4)
    return split[0], split[1], split[2]


def _attended(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
    scores = (q * HEAD_SIZE**-0.5) @ k.swapaxes(2, 3)
    if bias is not None:
        scores = scores + bias
    made = jax.nn.softmax(scores, axis=-1) @ v
    batch, _, tokens, _ = made.shape
    return made.transpose(0, 2, 1, 3).reshape(batch, tokens, WIDTH)


def _dense(x: Any, weight: Any) -> Any:
    return x @ weight[0] + weight[1]


def _normalised(x: Any, weight: Any, epsilon: float) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon) * weight[0] + weight[1]


def _norm(state: Weights, name: str) -> tuple[Any, Any]:
    return state[f"{name}.weight"], state[f"{name}.bias"]


def _linear(state: Weights, name: str) -> tuple[Any, Any]:
    return np.ascontiguousarray(state[f"{name}.weight"].T), state[f"{name}.bias"]


def _joined(state: Weights, *names: str) -> tuple[Any, Any]:
    """Several layers of one input as one product."""
    filters, biases = zip(*(_linear(state, name) for name in names), strict=True)
    return np.concatenate(filters, axis=1), np.concatenate(biases)
