"""Networks of decoders: of the whole text, or of new tokens with growing keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers.cache_utils import DynamicCache

from tests.zoo.language_models import AXES, VOCABULARY, builder, left_padded, right_padded, tokens
from tests.zoo.torch_exports import Network

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Two heads of keys and values for four of queries.
GROUPED = {**SIZES, "num_key_value_heads": 2}
SHAPES = ((2, 7), (1, 12))
# For models that are traced for one length.
ONE_LENGTH = ((2, 7), (1, 7))

HEAD_SIZE = 8
PAST = ("past_key_0", "past_value_0", "past_key_1", "past_value_1")
PRESENT = tuple(name.replace("past", "present") for name in PAST)
PAST_AXES: Mapping[str, Mapping[int, str]] = {
    "input_ids": AXES,
    "attention_mask": {0: "batch", 1: "total"},
    **{name: {0: "batch", 2: "past"} for name in PAST},
}


class WithoutCache(nn.Module):
    """A decoder that reads the whole text in each call."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        mask = {} if attention_mask is None else {"attention_mask": attention_mask}
        logits: torch.Tensor = self.model(input_ids=input_ids, use_cache=False, **mask).logits
        return logits


class FirstStep(nn.Module):
    """A decoder that reads a prompt and returns its keys and values."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return logits_and_cache(self.model, input_ids, attention_mask, DynamicCache())


class WithCache(nn.Module):
    """A decoder of two layers whose keys and values are inputs, and outputs that have grown."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past_key_0: torch.Tensor,
        past_value_0: torch.Tensor,
        past_key_1: torch.Tensor,
        past_value_1: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        cache = DynamicCache()
        cache.update(past_key_0, past_value_0, 0)
        cache.update(past_key_1, past_value_1, 1)
        return logits_and_cache(self.model, input_ids, attention_mask, cache)


def logits_and_cache(
    model: hf.PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    cache: DynamicCache,
) -> tuple[torch.Tensor, ...]:
    """Call a model with a cache; return the logits, and each layer's keys and values."""
    outputs = model(
        input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
    )
    present = outputs.past_key_values.layers
    return outputs.logits, *(part for each in present for part in (each.keys, each.values))


def whole(
    name: str,
    kind: type[hf.PreTrainedModel],
    config: hf.PreTrainedConfig,
    mask: Callable[[int, int], torch.Tensor] | None = left_padded,
    *,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    dtype: torch.dtype = torch.float32,
    attention: str = "eager",
    **options: Any,
) -> Network:
    """Return a decoder that reads the whole text."""
    calls: list[dict[str, torch.Tensor]] = [{"input_ids": tokens(*shape)} for shape in shapes]
    if mask is not None:
        for call, shape in zip(calls, shapes, strict=True):
            call["attention_mask"] = mask(*shape)
    axes = {0: "batch"} if shapes is ONE_LENGTH else AXES
    build = builder(kind, config, WithoutCache, attention, dtype)
    return Network(name, build, calls, ("logits",), dict.fromkeys(calls[0], axes), **options)


def half(name: str, kind: type[hf.PreTrainedModel], config: hf.PreTrainedConfig) -> Network:
    """Return a decoder in float16.

    Its texts are padded on the right: an added -65504 leaves nothing of the scores of a token that
    sees padding alone, whereas onnxruntime computes in float32, where something is left.
    """
    return whole(f"{name} float16", kind, config, right_padded, dtype=torch.float16)


def cached(
    name: str,
    kind: type[hf.PreTrainedModel],
    config: hf.PreTrainedConfig,
    heads: int,
    *,
    attention: str = "eager",
    **options: Any,
) -> Network:
    """Return a decoder whose keys and values are inputs: for more tokens, for one, for a prompt."""
    calls = [with_past(*each, heads) for each in ((2, 4, 3), (1, 6, 1), (2, 0, 1))]
    build = builder(kind, config, WithCache, attention)
    return Network(f"{name} cache", build, calls, ("logits", *PRESENT), PAST_AXES, **options)


def with_past(batch: int, past: int, length: int, heads: int) -> dict[str, torch.Tensor]:
    """Return a call of `WithCache`."""
    caches = {name: torch.randn(batch, heads, past, HEAD_SIZE) for name in PAST}
    mask = left_padded(batch, past + length)
    return {"input_ids": tokens(batch, length), "attention_mask": mask, **caches}
