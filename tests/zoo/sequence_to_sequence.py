"""Encoders with decoders: translation and summaries, whole or in the parts that users export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from tests.zoo.entry import Entry
from tests.zoo.language_models import AXES, VOCABULARY, builder, right_padded, tokens
from tests.zoo.torch_exports import TORCHSCRIPT, Network, exports_of

SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 0,
}
# Batch, length of the source and of what was written so far.
SHAPES = ((2, 7, 3), (1, 12, 9))
SCRIPTED = {"exporters": (TORCHSCRIPT,)}
STATES_AXES = {0: "batch", 1: "source"}
TARGET_AXES = {0: "batch", 1: "target"}


class Whole(nn.Module):
    """Source and target in, logits out."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
    ) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        ).logits
        return logits


class EncoderPart(nn.Module):
    """What runs once for a source."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return states


class DecoderPart(nn.Module):
    """What runs for each token, over the encoder's states."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
    ) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,),
            attention_mask=encoder_attention_mask,
            use_cache=False,
        ).logits
        return logits


class DecoderStep(nn.Module):
    """One token more: the keys and values of one layer's source and target are inputs."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
        past_key: torch.Tensor,
        past_value: torch.Tensor,
        source_key: torch.Tensor,
        source_value: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        target, source = DynamicCache(), DynamicCache()
        target.update(past_key, past_value, 0)
        source.update(source_key, source_value, 0)
        cache = EncoderDecoderCache(target, source)
        cache.is_updated[0] = True
        outputs = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=(source_key.new_zeros(input_ids.shape[0], source_key.shape[2], 32),),
            attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        (present,) = outputs.past_key_values.self_attention_cache.layers
        return outputs.logits, present.keys, present.values


def _whole(
    name: str,
    kind: type[hf.PreTrainedModel],
    config: hf.PreTrainedConfig,
    attention: str = "eager",
    **options: Any,
) -> Network:
    calls = [
        {
            "input_ids": tokens(batch, source),
            "attention_mask": right_padded(batch, source),
            "decoder_input_ids": tokens(batch, target),
        }
        for batch, source, target in SHAPES
    ]
    axes = {"input_ids": AXES, "attention_mask": AXES, "decoder_input_ids": TARGET_AXES}
    build = builder(kind, config, Whole, attention)
    return Network(name, build, calls, ("logits",), axes, **options)


def _parts(
    name: str, kind: type[hf.PreTrainedModel], config: hf.PreTrainedConfig
) -> Iterator[Network]:
    calls: list[Mapping[str, torch.Tensor]] = [
        {"input_ids": tokens(batch, source), "attention_mask": right_padded(batch, source)}
        for batch, source, _ in SHAPES
    ]
    build = builder(kind, config, EncoderPart)
    axes = dict.fromkeys(calls[0], AXES)
    yield Network(f"{name} encoder", build, calls, ("last_hidden_state",), axes)
    calls = [
        {
            "input_ids": tokens(batch, target),
            "encoder_hidden_states": torch.randn(batch, source, 32),
            "encoder_attention_mask": right_padded(batch, source),
        }
        for batch, source, target in SHAPES
    ]
    build = builder(kind, config, DecoderPart)
    axes = dict.fromkeys(calls[0], STATES_AXES) | {"input_ids": TARGET_AXES}
    yield Network(f"{name} decoder", build, calls, ("logits",), axes)


def _step(name: str, kind: type[hf.PreTrainedModel], config: hf.PreTrainedConfig) -> Network:
    calls = [
        {
            "input_ids": tokens(batch, 1),
            "encoder_attention_mask": right_padded(batch, source),
            "past_key": torch.randn(batch, 4, past, 8),
            "past_value": torch.randn(batch, 4, past, 8),
            "source_key": torch.randn(batch, 4, source, 8),
            "source_value": torch.randn(batch, 4, source, 8),
        }
        for batch, source, past in SHAPES
    ]
    past = {0: "batch", 2: "past"}
    source = {0: "batch", 2: "source"}
    axes = {
        "input_ids": {0: "batch"},
        "encoder_attention_mask": STATES_AXES,
        "past_key": past,
        "past_value": past,
        "source_key": source,
        "source_value": source,
    }
    outputs = ("logits", "present_key", "present_value")
    return Network(f"{name} step", builder(kind, config, DecoderStep), calls, outputs, axes)


def _t5() -> Iterator[Network]:
    config = hf.T5Config(**T5_SIZES)
    yield _whole("t5", hf.T5ForConditionalGeneration, config)
    yield _whole("t5 opset 14", hf.T5ForConditionalGeneration, config, opset=14, **SCRIPTED)
    yield from _parts("t5", hf.T5ForConditionalGeneration, config)
    single = hf.T5Config(**{**T5_SIZES, "num_layers": 1, "num_decoder_layers": 1})
    yield _step("t5", hf.T5ForConditionalGeneration, single)
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    yield _whole("mt5", hf.MT5ForConditionalGeneration, hf.MT5Config(**T5_SIZES, **gated))
    long = hf.LongT5Config(**T5_SIZES, local_radius=3, encoder_attention_type="local")
    yield from _parts("longt5", hf.LongT5ForConditionalGeneration, long)


def _bart() -> Iterator[Network]:
    config = hf.BartConfig(**SIZES)
    yield _whole("bart", hf.BartForConditionalGeneration, config)
    yield _whole("bart sdpa", hf.BartForConditionalGeneration, config, attention="sdpa", **SCRIPTED)
    yield from _parts("bart", hf.BartForConditionalGeneration, config)
    single = hf.BartConfig(**{**SIZES, "encoder_layers": 1, "decoder_layers": 1})
    yield _step("bart", hf.BartForConditionalGeneration, single)
    yield _whole("mbart", hf.MBartForConditionalGeneration, hf.MBartConfig(**SIZES), **SCRIPTED)
    yield _whole(
        "pegasus", hf.PegasusForConditionalGeneration, hf.PegasusConfig(**SIZES), **SCRIPTED
    )
    yield _whole("marian", hf.MarianMTModel, hf.MarianConfig(**SIZES))
    yield _whole("m2m100", hf.M2M100ForConditionalGeneration, hf.M2M100Config(**SIZES), **SCRIPTED)
    yield _whole(
        "blenderbot",
        hf.BlenderbotForConditionalGeneration,
        hf.BlenderbotConfig(**SIZES),
        **SCRIPTED,
    )
    prophet = hf.ProphetNetConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    generation = hf.ProphetNetForConditionalGeneration
    yield _whole("prophetnet", generation, prophet, **SCRIPTED)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    yield from exports_of([*_t5(), *_bart()])
