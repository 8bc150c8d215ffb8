"""Encoders of text with the heads that users export: classes, spans, masked words, embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import transformers as hf
from torch import nn

from tests.zoo.entry import Entry
from tests.zoo.language_models import (
    AXES,
    VOCABULARY,
    Chosen,
    builder,
    right_padded,
    tokens,
)
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, exports_of

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
POOLED = ("last_hidden_state", "pooler_output")
THREE = ("input_ids", "attention_mask", "token_type_ids")
SHAPES = ((2, 7), (1, 12))
SCRIPTED = {"exporters": (TORCHSCRIPT,)}


class Embedding(nn.Module):
    """A sentence's embedding: the mean over its tokens, of length one."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[:, :, None].expand(states.shape).to(states.dtype)
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, p=2, dim=1)


def encoder(
    name: str,
    kind: type[hf.PreTrainedModel],
    config: hf.PreTrainedConfig,
    results: Sequence[str] = ("last_hidden_state",),
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    *,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    attention: str = "eager",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Network:
    """Return an encoder with results by name; with one shape, no axis may change."""
    build = builder(kind, config, partial(Chosen, results=results), attention, dtype)
    calls = [_call(shape, inputs) for shape in shapes]
    axes = dict.fromkeys(inputs, AXES) if len(shapes) > 1 else {}
    return Network(name, build, calls, results, axes, **options)


def _call(shape: tuple[int, int], inputs: Sequence[str]) -> Mapping[str, torch.Tensor]:
    every = {
        "input_ids": tokens(*shape),
        "attention_mask": right_padded(*shape),
        "token_type_ids": (torch.arange(shape[1]) > shape[1] // 2).long().expand(shape),
    }
    return {name: every[name] for name in inputs}


def _embedding(name: str, kind: type[hf.PreTrainedModel], config: hf.PreTrainedConfig) -> Network:
    inputs = ("input_ids", "attention_mask")
    calls = [_call(shape, inputs) for shape in SHAPES]
    build = builder(kind, config, Embedding)
    return Network(name, build, calls, ("sentence",), dict.fromkeys(inputs, AXES))


def _bert() -> Iterator[Network]:
    bert = partial(hf.BertConfig, **SIZES)
    yield encoder("bert", hf.BertModel, bert(), POOLED, THREE)
    yield encoder("bert sdpa", hf.BertModel, bert(), POOLED, THREE, attention="sdpa")
    # From opset 23 on, torch writes whole attentions.
    later = {"attention": "sdpa", "opset": 23, "exporters": (DYNAMO,)}
    yield encoder("bert opset 23", hf.BertModel, bert(), POOLED, THREE, **later)
    yield encoder("bert without mask", hf.BertModel, bert(), POOLED, ("input_ids",), **SCRIPTED)
    classes = bert(num_labels=3)
    classification = hf.BertForSequenceClassification
    yield encoder("bert classification", classification, classes, ("logits",), THREE, **SCRIPTED)
    of_tokens = hf.BertForTokenClassification
    yield encoder("bert tokens", of_tokens, classes, ("logits",), THREE, **SCRIPTED)
    spans = ("start_logits", "end_logits")
    answers = hf.BertForQuestionAnswering
    yield encoder("bert spans", answers, bert(), spans, THREE, **SCRIPTED)
    yield encoder("bert masked words", hf.BertForMaskedLM, bert(), ("logits",), THREE, **SCRIPTED)


def _others() -> Iterator[Network]:
    distil = hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48, num_labels=3
    )
    classification = hf.DistilBertForSequenceClassification
    yield encoder("distilbert", classification, distil, ("logits",))
    roberta = hf.RobertaConfig(**SIZES, num_labels=3, pad_token_id=1)
    yield encoder("roberta", hf.RobertaForSequenceClassification, roberta, ("logits",))
    camembert = hf.CamembertConfig(**SIZES, pad_token_id=1)
    yield encoder("camembert", hf.CamembertForMaskedLM, camembert, ("logits",), **SCRIPTED)
    albert = hf.AlbertConfig(**SIZES, embedding_size=16)
    yield encoder("albert", hf.AlbertForMaskedLM, albert, ("logits",))
    electra = hf.ElectraConfig(**SIZES, embedding_size=16)
    yield encoder("electra", hf.ElectraForPreTraining, electra, ("logits",))
    yield encoder("mpnet", hf.MPNetModel, hf.MPNetConfig(**SIZES))
    modern = hf.ModernBertConfig(
        **SIZES, pad_token_id=0, local_attention=6, global_attn_every_n_layers=2
    )
    yield encoder("modernbert", hf.ModernBertForMaskedLM, modern, ("logits",))
    embedded = {**SIZES, "embedding_size": 32}
    yield encoder("convbert", hf.ConvBertModel, hf.ConvBertConfig(**embedded))
    yield encoder("squeezebert", hf.SqueezeBertModel, hf.SqueezeBertConfig(**embedded), **SCRIPTED)
    yield encoder("roformer", hf.RoFormerModel, hf.RoFormerConfig(**embedded))
    protein = hf.EsmConfig(
        **SIZES, pad_token_id=1, mask_token_id=5, position_embedding_type="rotary"
    )
    yield encoder("esm", hf.EsmModel, protein)


def _unlike_bert() -> Iterator[Network]:
    xlnet = hf.XLNetConfig(vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=48)
    yield encoder("xlnet", hf.XLNetModel, xlnet)
    xlm = hf.XLMConfig(vocab_size=VOCABULARY, emb_dim=32, n_layers=2, n_heads=4)
    yield encoder("xlm", hf.XLMModel, xlm)
    funnel = hf.FunnelConfig(
        vocab_size=VOCABULARY, d_model=32, n_head=4, d_head=8, d_inner=48, block_sizes=[1, 1]
    )
    yield encoder("funnel", hf.FunnelModel, funnel)
    fourier = hf.FNetConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, intermediate_size=48
    )
    yield encoder("fnet", hf.FNetModel, fourier, inputs=("input_ids",))


def _deberta() -> Iterator[Network]:
    relative = {
        "relative_attention": True,
        "max_relative_positions": 12,
        "pos_att_type": ["p2c", "c2p"],
        "type_vocab_size": 0,
    }
    first = hf.DebertaConfig(**SIZES, **relative)
    yield encoder("deberta", hf.DebertaModel, first)
    second = hf.DebertaV2Config(
        **SIZES,
        **relative,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        conv_kernel_size=3,
        conv_act="gelu",
        num_labels=3,
        position_biased_input=False,
    )
    classification = hf.DebertaV2ForSequenceClassification
    yield encoder("deberta v2", classification, second, ("logits",))


def _long() -> Iterator[Network]:
    longformer = hf.LongformerConfig(**SIZES, attention_window=[4, 4], pad_token_id=1)
    yield encoder("longformer", hf.LongformerModel, longformer, shapes=((2, 8),))
    sizes = {**SIZES, "max_position_embeddings": 80}
    big = hf.BigBirdConfig(
        **sizes, attention_type="block_sparse", block_size=4, num_random_blocks=2
    )
    yield encoder("bigbird", hf.BigBirdModel, big, shapes=((2, 64),))
    full = hf.BigBirdConfig(**SIZES, attention_type="original_full")
    yield encoder("bigbird full", hf.BigBirdModel, full, **SCRIPTED)


def _embeddings() -> Iterator[Network]:
    yield _embedding("sentence embedding", hf.BertModel, hf.BertConfig(**SIZES))
    yield _embedding("sentence embedding mpnet", hf.MPNetModel, hf.MPNetConfig(**SIZES))
    clip = hf.CLIPTextConfig(**SIZES, projection_dim=24, eos_token_id=2, bos_token_id=1)
    results = ("text_embeds", "last_hidden_state")
    yield encoder("clip text", hf.CLIPTextModelWithProjection, clip, results)
    siglip = hf.SiglipTextConfig(**SIZES)
    yield encoder("siglip text", hf.SiglipTextModel, siglip, ("pooler_output",), **SCRIPTED)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    networks = [*_bert(), *_others(), *_unlike_bert(), *_deberta(), *_long(), *_embeddings()]
    yield from exports_of(networks)
    bert = hf.BertConfig(**SIZES)
    half = encoder("bert float16", hf.BertModel, bert, POOLED, THREE, dtype=torch.float16)
    yield from exports_of([half], coarse=True)
