"""Decoders whose heads of queries share keys and values, as Llama's: windows, caps, experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf

from tests.zoo.decoder_calls import GROUPED, ONE_LENGTH, SIZES, cached, half, whole
from tests.zoo.entry import Entry
from tests.zoo.merged_decoder import merged
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, exports_of

SCRIPTED = {"exporters": (TORCHSCRIPT,)}
# From opset 23 on, torch writes whole attentions, normalizations and rotations.
LATER: dict[str, Any] = {"attention": "sdpa", "opset": 23, "exporters": (DYNAMO,)}
TWO_KINDS = ["sliding_attention", "full_attention"]
# The scaling of rotary frequencies that Llama 3 came with.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 20,
}


def _llama() -> Iterator[Network]:
    llama = hf.LlamaConfig(**GROUPED)
    yield whole("llama", hf.LlamaForCausalLM, llama)
    yield whole("llama sdpa", hf.LlamaForCausalLM, llama, attention="sdpa", **SCRIPTED)
    yield cached("llama", hf.LlamaForCausalLM, llama, 2)
    yield cached("llama sdpa", hf.LlamaForCausalLM, llama, 2, attention="sdpa")
    scaled = hf.LlamaConfig(**GROUPED, rope_parameters=LLAMA3)
    yield whole("llama scaled rotary", hf.LlamaForCausalLM, scaled, **SCRIPTED)
    mistral = hf.MistralConfig(**GROUPED, head_dim=8, sliding_window=4)
    yield whole("mistral window", hf.MistralForCausalLM, mistral)
    yield cached("mistral window", hf.MistralForCausalLM, mistral, 2, **SCRIPTED)
    qwen2 = hf.Qwen2Config(**GROUPED)
    yield whole("qwen2", hf.Qwen2ForCausalLM, qwen2, **SCRIPTED)
    yield cached("qwen2", hf.Qwen2ForCausalLM, qwen2, 2, **SCRIPTED)
    qwen3 = hf.Qwen3Config(**GROUPED, head_dim=8)
    yield whole("qwen3", hf.Qwen3ForCausalLM, qwen3)
    yield cached("qwen3", hf.Qwen3ForCausalLM, qwen3, 2, **SCRIPTED)
    phi3 = hf.Phi3Config(**GROUPED)
    yield whole("phi3", hf.Phi3ForCausalLM, phi3)
    yield cached("phi3", hf.Phi3ForCausalLM, phi3, 2, **SCRIPTED)
    stablelm = hf.StableLmConfig(**GROUPED, partial_rotary_factor=0.25)
    yield whole("stablelm", hf.StableLmForCausalLM, stablelm, **SCRIPTED)
    yield whole("olmo2", hf.Olmo2ForCausalLM, hf.Olmo2Config(**GROUPED), **SCRIPTED)
    smol = hf.SmolLM3Config(**GROUPED, no_rope_layer_interval=2)
    yield whole("smollm3", hf.SmolLM3ForCausalLM, smol, **SCRIPTED)
    yield whole("cohere", hf.CohereForCausalLM, hf.CohereConfig(**GROUPED))
    granite = hf.GraniteConfig(**GROUPED, logits_scaling=2.0)
    yield whole("granite", hf.GraniteForCausalLM, granite, **SCRIPTED)
    lfm2 = hf.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"])
    yield whole("lfm2", hf.Lfm2ForCausalLM, lfm2)
    hybrid = {**GROUPED, "num_hidden_layers": 3}
    griffin = hf.RecurrentGemmaConfig(**hybrid, attention_window_size=4)
    yield whole("recurrent gemma", hf.RecurrentGemmaForCausalLM, griffin, None)


def _gemma() -> Iterator[Network]:
    gemma = hf.GemmaConfig(**GROUPED, head_dim=8)
    yield whole("gemma", hf.GemmaForCausalLM, gemma)
    second = hf.Gemma2Config(
        **GROUPED,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=4,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    )
    yield whole("gemma2 softcap", hf.Gemma2ForCausalLM, second)
    third = hf.Gemma3TextConfig(
        **GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=4, layer_types=TWO_KINDS
    )
    yield whole("gemma3", hf.Gemma3ForCausalLM, third, **SCRIPTED)
    yield cached("gemma3", hf.Gemma3ForCausalLM, third, 2)


def _experts() -> Iterator[Network]:
    # Exporters have no operator for grouped products, the implementation that is chosen otherwise.
    few = {
        "num_experts_per_tok": 2,
        "num_experts": 4,
        "num_local_experts": 4,
        "experts_implementation": "batched_mm",
    }
    yield whole("mixtral", hf.MixtralForCausalLM, hf.MixtralConfig(**GROUPED, **few))
    qwen = hf.Qwen2MoeConfig(
        **GROUPED, **few, moe_intermediate_size=24, shared_expert_intermediate_size=24
    )
    yield whole("qwen2 experts", hf.Qwen2MoeForCausalLM, qwen, **SCRIPTED)
    oss = hf.GptOssConfig(**GROUPED, **few, head_dim=8, sliding_window=4, layer_types=TWO_KINDS)
    yield whole("gpt oss sinks", hf.GptOssForCausalLM, oss)
    deepseek = hf.DeepseekV3Config(
        **SIZES,
        **few,
        num_key_value_heads=4,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=24,
        n_shared_experts=1,
        first_k_dense_replace=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
    )
    yield whole("deepseek v3", hf.DeepseekV3ForCausalLM, deepseek)
    olmoe = hf.OlmoeConfig(**GROUPED, **few)
    # Of its two kinds of layers one has linear attention, traced for one length.
    linear = {"head_dim": 8, "block_size": 4, "layer_types": ["linear_attention", "full_attention"]}
    minimax = hf.MiniMaxConfig(**GROUPED, **few, **linear)
    yield whole("minimax", hf.MiniMaxForCausalLM, minimax, shapes=ONE_LENGTH, **SCRIPTED)
    yield whole("olmoe", hf.OlmoeForCausalLM, olmoe, **SCRIPTED)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    llama = hf.LlamaConfig(**GROUPED)
    # onnxruntime's RotaryEmbedding has no angles that all texts of a batch share.
    one_text = {"shapes": ((1, 7), (1, 12)), **LATER}
    later = [
        whole("llama opset 23", hf.LlamaForCausalLM, llama, **one_text),
        cached("llama opset 23", hf.LlamaForCausalLM, llama, 2, **LATER),
    ]
    yield from exports_of([*_llama(), *_gemma(), *_experts(), *later])
    yield from exports_of([half("llama", hf.LlamaForCausalLM, llama)], coarse=True)
    yield merged("llama", hf.LlamaForCausalLM, llama, 2)
