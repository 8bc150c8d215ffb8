"""Language models by the model builder of onnxruntime-genai, from small ones of transformers.

They embed, attend by GroupQueryAttention with a growing cache of keys and values, and multiply by
weights of 32, 16, 8 or 4 bits. Each is asked for a prompt, and then for tokens after it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import Whitespace

from tests.zoo.entry import Call, Entry

EXPORTER = "onnxruntime-genai"
ROUNDED = "accuracy_level 4 lets onnxruntime round activations to 8 bits, so level 1 is the judge"
VOCABULARY, ROOM, WINDOW = 64, 12, 6
DTYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int64)": np.int64,
}
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    # Wide enough for logits and attention that tell tokens apart.
    "initializer_range": 0.2,
}


@dataclass(frozen=True)
class Build:
    """A configuration by its class in transformers, and the builder's arguments."""

    name: str
    config: str
    precision: str = "fp32"
    provider: str = "cpu"
    options: Sequence[str] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)
    # The scale of keys and values in a cache of few bits.
    cache_scale: float | None = None

    @property
    def is_coarse(self) -> bool:
        return self.precision != "fp32" or self.cache_scale is not None

    @property
    def rounds_activations(self) -> bool:
        is_quantized = self.precision.startswith("int") and self.provider == "cpu"
        return is_quantized and "accuracy_level=1" not in self.options


WINDOWED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
WIDE_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
# Another rotation for positions from the 8th on.
LONG = {
    "original_max_position_embeddings": 8,
    "rope_parameters": {
        "rope_type": "longrope",
        "type": "longrope",  # The builder's word for it.
        "rope_theta": 10000.0,
        "short_factor": [1.0 + index / 9 for index in range(8)],
        "long_factor": [2.0 + index / 3 for index in range(8)],
        "original_max_position_embeddings": 8,
        "short_mscale": 1.0,
        "long_mscale": 1.2,
    },
}
SHORT_CONVOLUTIONS = {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
LFM_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
ATTENTION_ALONE = {
    "layer_types": ["attention", "attention"],
    "num_local_experts": 0,
    "shared_intermediate_size": 128,
}
BUILDS = [
    Build("llama", "LlamaConfig"),
    Build("llama int4", "LlamaConfig", "int4"),
    Build("llama int8", "LlamaConfig", "int8"),
    Build("llama fp16", "LlamaConfig", "fp16", "cuda"),
    Build("llama fp16 int4", "LlamaConfig", "int4", "cuda"),
    Build("llama int4 qdq", "LlamaConfig", "int4", options=["use_qdq=true"]),
    Build("llama int4 asymmetric", "LlamaConfig", "int4", options=["is_symmetric=false"]),
    Build("llama int4 of float activations", "LlamaConfig", "int4", options=["accuracy_level=1"]),
    Build("llama int4 mixed", "LlamaConfig", "int4", options=["algo_config=k_quant_mixed"]),
    Build("llama int4 blocks of 16", "LlamaConfig", "int4", options=["block_size=16"]),
    Build(
        "llama int8 cache",
        "LlamaConfig",
        cache_scale=0.02,
        options=["kv_cache_quant_scheme=int8_per_tensor"],
    ),
    Build(
        "llama int4 cache",
        "LlamaConfig",
        cache_scale=0.3,
        options=["kv_cache_quant_scheme=int4_per_tensor"],
    ),
    Build("llama three projections", "LlamaConfig", options=["fuse_qkv=false"]),
    Build("llama of hidden states", "LlamaConfig", options=["exclude_lm_head=true"]),
    Build("llama with hidden states", "LlamaConfig", options=["include_hidden_states=true"]),
    Build("llama from embeddings", "LlamaConfig", options=["exclude_embeds=true"]),
    Build("llama of last logits", "LlamaConfig", options=["prune_lm_head=true"]),
    Build(
        "llama shared int4 embeddings",
        "LlamaConfig",
        "int4",
        options=["shared_embeddings=true", "op_types_to_quantize=MatMul/Gather"],
        sizes={"tie_word_embeddings": True},
    ),
    Build(
        "llama of long contexts",
        "LlamaConfig",
        sizes={
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    Build("mistral", "MistralConfig", sizes={"sliding_window": WINDOW}),
    Build("qwen2", "Qwen2Config"),
    Build("qwen2 int4", "Qwen2Config", "int4"),
    Build("qwen3", "Qwen3Config"),
    Build("qwen3 int4", "Qwen3Config", "int4"),
    Build("gemma", "GemmaConfig", sizes={"hidden_activation": "gelu_pytorch_tanh"}),
    Build("gemma2", "Gemma2Config", options=["windowed_kv_cache=false"], sizes=WINDOWED),
    Build("gemma2 of sliding caches", "Gemma2Config", sizes=WINDOWED),
    Build("gemma2 int4 of sliding caches", "Gemma2Config", "int4", sizes=WINDOWED),
    Build(
        "gemma2 of sliding int8 caches",
        "Gemma2Config",
        options=["kv_cache_quant_scheme=int8_per_tensor"],
        sizes=WINDOWED,
        cache_scale=0.02,
    ),
    Build("gemma3", "Gemma3TextConfig", sizes=WINDOWED | {"query_pre_attn_scalar": 16}),
    Build("gemma3 int4", "Gemma3TextConfig", "int4", sizes=WINDOWED),
    Build("phi", "PhiConfig", sizes=WIDE_HEADS | {"partial_rotary_factor": 0.5}),
    Build("phi3", "Phi3Config", sizes={"original_max_position_embeddings": 64}),
    Build("phi3 int4", "Phi3Config", "int4", sizes={"original_max_position_embeddings": 64}),
    Build("phi3 of long contexts", "Phi3Config", sizes=LONG),
    Build("granite", "GraniteConfig", sizes={"embedding_multiplier": 3.0, "logits_scaling": 2.0}),
    Build("granite hybrid", "GraniteMoeHybridConfig", sizes=ATTENTION_ALONE),
    Build("hunyuan", "HunYuanDenseV1Config"),
    Build("smollm3", "SmolLM3Config", sizes={"no_rope_layers": [1, 0]}),
    Build("nemotron", "NemotronConfig", sizes=WIDE_HEADS),
    Build("olmo", "OlmoConfig"),
    Build("ernie", "Ernie4_5Config"),
    Build("lfm2", "Lfm2Config", sizes=SHORT_CONVOLUTIONS),
    Build("lfm2 moe", "Lfm2MoeConfig", "int4", sizes=SHORT_CONVOLUTIONS | LFM_EXPERTS),
]


def entries() -> Iterator[Entry]:
    for build in BUILDS:
        differs = ROUNDED if build.rounds_activations else ""
        yield Entry(build.name, EXPORTER, _writer(build), build.is_coarse, differs)


def _writer(build: Build) -> Callable[[Path], Sequence[Call]]:
    def write(path: Path) -> Sequence[Call]:
        with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            source, target = Path(folder, "source"), Path(folder, "target")
            _save_source(build, source)
            _run_builder(build, source, target)
            onnx.save(onnx.load(target / "model.onnx"), path)
            calls = _calls(path, build.sizes.get("head_dim", SIZES["head_dim"]))
            if not build.rounds_activations:
                return calls
            exact = Path(folder, "exact.onnx")
            onnx.save(_of_float_activations(onnx.load(path)), exact)
            session = onnxruntime.InferenceSession(exact, providers=["CPUExecutionProvider"])
            return [Call(each.feeds, session.run(None, dict(each.feeds))) for each in calls]

    return write


def _of_float_activations(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    return model


def _save_source(build: Build, folder: Path) -> None:
    """Save a model with random weights, and a tokenizer, which the builder copies."""
    torch.manual_seed(0)
    config = getattr(transformers, build.config)(**{**SIZES, **build.sizes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    words = {f"word{index}": index for index in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    tokenizer.pre_tokenizer = Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def _run_builder(build: Build, source: Path, target: Path) -> None:
    spec = find_spec("onnxruntime_genai")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("onnxruntime-genai is not installed")
    # Its modules import each other by their names in this folder.
    folder = str(Path(spec.origin).parent / "models")
    if folder not in sys.path:
        sys.path.append(folder)
    import builder  # noqa: PLC0415

    cache = str(target.with_name("cache"))
    common = ("", str(source), str(target), build.precision, build.provider, cache)
    options = builder.parse_extra_options(*common, [*build.options, *_scale_options(build, source)])
    builder.create_model(*common, **options)


def _scale_options(build: Build, folder: Path) -> list[str]:
    """Write the scales of a cache of few bits, and return the option that names their file."""
    if build.cache_scale is None:
        return []
    path = folder / "scales.json"
    of_layers = [[build.cache_scale]] * SIZES["num_hidden_layers"]
    path.write_text(json.dumps({"scales": {"k_scales": of_layers, "v_scales": of_layers}}))
    return [f"kv_cache_scale_file={path}"]


def _calls(path: Path, head_size: int) -> list[Call]:
    """Return a prompt, tokens after it, prompts of two lengths, and a prompt in a fixed cache."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)

    def feeds_of(mask: np.ndarray, length: int, past: int) -> dict[str, np.ndarray]:
        sizes = {
            "batch_size": len(mask),
            "sequence_length": length,
            "past_sequence_length": past,
            "past_sliding_length": WINDOW,
            "total_sequence_length": mask.shape[1],
            "kv_cache_dim": head_size,
        }
        return _feeds(session, rng, mask, sizes)

    # A sliding cache takes only prompts of one length, and has random rows until it is full.
    slides = any("past_sliding_length" in each.shape for each in session.get_inputs())
    first = WINDOW + 1 if slides else 5
    prompt = feeds_of(np.ones((1, first), np.int64), first, 0)
    calls = [prompt]
    for length in (1, 1, 3):
        past = _past_after(session, calls[-1])
        seen = calls[-1]["attention_mask"].shape[1] + length
        feeds = feeds_of(np.ones((1, seen), np.int64), length, seen - length)
        calls.append({**feeds, **past})
    several = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    if slides:
        several = np.ones((2, first), np.int64)
    calls.append(feeds_of(several, several.shape[1], 0))
    calls.append(feeds_of(np.ones((1, first - 1), np.int64), first - 1, ROOM))
    return [Call(each) for each in calls]


def _feeds(
    session: onnxruntime.InferenceSession,
    rng: np.random.Generator,
    mask: np.ndarray,
    sizes: Mapping[str, int],
) -> dict[str, np.ndarray]:
    """Return inputs for the last tokens of a mask, with a cache of zeros."""
    feeds: dict[str, np.ndarray] = {}
    for each in session.get_inputs():
        shape = [axis if isinstance(axis, int) else sizes[axis] for axis in each.shape]
        dtype = DTYPES[each.type]
        if each.name == "attention_mask":
            feeds[each.name] = mask
        elif each.name == "input_ids":
            feeds[each.name] = rng.integers(3, VOCABULARY, shape)
        elif each.name == "position_ids":
            feeds[each.name] = np.maximum(mask.cumsum(1) - 1, 0)[:, -sizes["sequence_length"] :]
        elif each.name.startswith("past"):
            feeds[each.name] = np.zeros(shape, dtype)
        else:
            feeds[each.name] = rng.normal(size=shape).astype(dtype)
    return feeds


def _past_after(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    names = [each.name for each in session.get_outputs()]
    results = dict(zip(names, session.run(None, dict(feeds)), strict=True))
    return {
        each.name: results[each.name.replace("past_key_values", "past").replace("past", "present")]
        for each in session.get_inputs()
        if each.name.startswith("past")
    }
