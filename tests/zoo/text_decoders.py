"""Decoders of text with one head of keys for each of queries, or one for all; state spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf

from tests.zoo.decoder_calls import ONE_LENGTH, SIZES, cached, half, whole
from tests.zoo.entry import Entry
from tests.zoo.language_models import VOCABULARY
from tests.zoo.merged_decoder import merged
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, exports_of

SCRIPTED = {"exporters": (TORCHSCRIPT,)}
# From opset 23 on, torch writes whole attentions, normalizations and rotations.
LATER: dict[str, Any] = {"attention": "sdpa", "opset": 23, "exporters": (DYNAMO,)}
OWN_WORDS: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
GPT2: dict[str, Any] = {**OWN_WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}


def _learned_positions() -> Iterator[Network]:
    gpt2 = hf.GPT2Config(**GPT2)
    yield whole("gpt2", hf.GPT2LMHeadModel, gpt2)
    yield whole("gpt2 sdpa", hf.GPT2LMHeadModel, gpt2, attention="sdpa")
    yield whole("gpt2 opset 11", hf.GPT2LMHeadModel, gpt2, opset=11, **SCRIPTED)
    yield whole("gpt2 without mask", hf.GPT2LMHeadModel, gpt2, None, attention="sdpa")
    yield cached("gpt2", hf.GPT2LMHeadModel, gpt2, 4)
    yield cached("gpt2 sdpa", hf.GPT2LMHeadModel, gpt2, 4, attention="sdpa", **SCRIPTED)
    neo = hf.GPTNeoConfig(
        **OWN_WORDS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        max_position_embeddings=40,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
    )
    yield whole("gpt neo", hf.GPTNeoForCausalLM, neo)
    yield cached("gpt neo", hf.GPTNeoForCausalLM, neo, 4, **SCRIPTED)
    opt = hf.OPTConfig(**SIZES, ffn_dim=48, word_embed_proj_dim=16)
    yield whole("opt", hf.OPTForCausalLM, opt)
    yield cached("opt", hf.OPTForCausalLM, opt, 4, **SCRIPTED)
    bigcode = hf.GPTBigCodeConfig(**GPT2, multi_query=True)
    yield whole("gpt bigcode", hf.GPTBigCodeForCausalLM, bigcode, **SCRIPTED)
    biogpt = hf.BioGptConfig(**SIZES)
    yield whole("biogpt", hf.BioGptForCausalLM, biogpt, **SCRIPTED)


def _alibi() -> Iterator[Network]:
    bloom = hf.BloomConfig(**OWN_WORDS, hidden_size=32, n_layer=2, n_head=4)
    yield whole("bloom", hf.BloomForCausalLM, bloom)
    yield cached("bloom", hf.BloomForCausalLM, bloom, 4, **SCRIPTED)
    falcon = hf.FalconConfig(**SIZES, alibi=True, new_decoder_architecture=False)
    yield whole("falcon alibi", hf.FalconForCausalLM, falcon)
    mpt = hf.MptConfig(**OWN_WORDS, d_model=32, n_layers=2, n_heads=4, max_seq_len=40)
    yield whole("mpt", hf.MptForCausalLM, mpt, **SCRIPTED)


def _rotary() -> Iterator[Network]:
    neox = hf.GPTNeoXConfig(**SIZES, rotary_pct=0.25)
    yield whole("gpt neox", hf.GPTNeoXForCausalLM, neox)
    yield cached("gpt neox", hf.GPTNeoXForCausalLM, neox, 4, **SCRIPTED)
    gptj = hf.GPTJConfig(**GPT2, rotary_dim=4)
    yield whole("gptj", hf.GPTJForCausalLM, gptj)
    codegen = hf.CodeGenConfig(**GPT2, rotary_dim=4)
    yield whole("codegen", hf.CodeGenForCausalLM, codegen, **SCRIPTED)
    falcon = hf.FalconConfig(**SIZES, multi_query=True, new_decoder_architecture=False)
    yield whole("falcon", hf.FalconForCausalLM, falcon, **SCRIPTED)
    phi = hf.PhiConfig(**SIZES, partial_rotary_factor=0.5)
    yield whole("phi", hf.PhiForCausalLM, phi, **SCRIPTED)
    persimmon = hf.PersimmonConfig(**SIZES, qk_layernorm=True)
    yield whole("persimmon", hf.PersimmonForCausalLM, persimmon, **SCRIPTED)


def _recurrent() -> Iterator[Network]:
    few: dict[str, Any] = {**OWN_WORDS, "hidden_size": 16, "num_hidden_layers": 2}
    one_length = {"mask": None, "shapes": ONE_LENGTH}
    mamba = hf.MambaConfig(**few, state_size=4, time_step_rank=2)
    yield whole("mamba", hf.MambaForCausalLM, mamba, **one_length)
    falcon = hf.FalconMambaConfig(**few, state_size=4, time_step_rank=2)
    yield whole("falcon mamba", hf.FalconMambaForCausalLM, falcon, **one_length, **SCRIPTED)
    second = hf.Mamba2Config(**few, state_size=4, num_heads=4, head_dim=8, n_groups=2, chunk_size=4)
    yield whole("mamba2", hf.Mamba2ForCausalLM, second, **one_length)
    rwkv = hf.RwkvConfig(**few, context_length=40, intermediate_size=24)
    yield whole("rwkv", hf.RwkvForCausalLM, rwkv, **one_length)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    gpt2 = hf.GPT2Config(**GPT2)
    networks = [*_learned_positions(), *_alibi(), *_rotary(), *_recurrent()]
    coarse = [half("gpt2", hf.GPT2LMHeadModel, gpt2)]
    later = whole("gpt2 opset 23", hf.GPT2LMHeadModel, gpt2, **LATER)
    yield from exports_of([*networks, later])
    yield from exports_of(coarse, coarse=True)
    yield merged("gpt2", hf.GPT2LMHeadModel, gpt2, 4)
