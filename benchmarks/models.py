"""The six networks of the benchmark: their names and their inputs, in NumPy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TOKENS = 128
VOCABULARY = {"bert": 30522, "gpt2": 50257}
LAYERS, HEADS, HEAD_SIZE = 12, 12, 64

Feeds = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Network:
    name: str
    title: str
    feeds: Callable[[int], Feeds]
    outputs: tuple[str, ...]


def caches(prefix: str) -> tuple[str, ...]:
    """The names of a decoder's keys and values, layer by layer."""
    return tuple(f"{prefix}.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))


def _image(batch: int) -> Feeds:
    return {"pixel_values": _normal((batch, 3, 224, 224))}


def _tokens_and_mask(batch: int) -> Feeds:
    """Sentences of unequal length, so that the mask has work to do."""
    mask = np.ones((batch, TOKENS), np.int64)
    for row in range(batch):
        mask[row, TOKENS - 8 * (row + 1) :] = 0
    kinds = np.zeros((batch, TOKENS), np.int64)
    kinds[:, TOKENS // 2 :] = 1
    ids = _ids("bert", (batch, TOKENS))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}


def _prompt(batch: int) -> Feeds:
    return {"input_ids": _ids("gpt2", (batch, TOKENS))}


def _step(batch: int) -> Feeds:
    past = {
        name: _normal((batch, HEADS, TOKENS, HEAD_SIZE), seed)
        for seed, name in enumerate(caches("past"))
    }
    return {"input_ids": _ids("gpt2", (batch, 1)), **past}


def _normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _ids(vocabulary: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, VOCABULARY[vocabulary], shape)


NETWORKS = {
    network.name: network
    for network in (
        Network("mobilenet_v2", "MobileNetV2", _image, ("logits",)),
        Network("resnet50", "ResNet-50", _image, ("logits",)),
        Network("vit_b16", "ViT-B/16", _image, ("logits",)),
        Network("bert_base", "BERT-base, 128 tokens", _tokens_and_mask, ("last_hidden", "pooled")),
        Network("gpt2_prefill", "GPT-2 prefill 128", _prompt, ("logits", *caches("present"))),
        Network("gpt2_decode", "GPT-2 decode, past 128", _step, ("logits", *caches("present"))),
    )
}
