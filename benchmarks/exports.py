"""The six networks in torch, with random weights, and their export to ONNX.

They are what the transformers library makes of each architecture's default configuration; nothing
is downloaded. The batch is a free dimension, and so is every sequence.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from benchmarks.models import LAYERS, NETWORKS

SEED = 0
# The standard deviation of biases that are zeros in an untrained network.
BIAS = 0.02
CLASSES = 1000

BATCH = torch.export.Dim("batch", min=1, max=64)
SEQUENCE = torch.export.Dim("sequence", min=1, max=512)
PAST = torch.export.Dim("past", min=1, max=512)


class Logits(nn.Module):
    """A network of which only the logits are wanted."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(pixel_values).logits
        return logits


class Encoder(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.network(input_ids, attention_mask, token_type_ids)
        return made.last_hidden_state, made.pooler_output


class Decoder(nn.Module):
    """Logits and the grown cache, whose keys and values come and go as a flat list of tensors."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = transformers.DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        made = self.network(input_ids, past_key_values=cache, use_cache=True)
        present = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return made.logits, *present


def module(name: str) -> nn.Module:
    """The torch module, ready to be called with the inputs of `models.py`, in their order."""
    torch.manual_seed(SEED)
    built = _BUILDERS[name]().eval()
    fill_biases(built)
    if any(isinstance(part, nn.BatchNorm2d) for part in built.modules()):
        settle(built, *(torch.from_numpy(array) for array in NETWORKS[name].feeds(8).values()))
    return built


def export(name: str, folder: Path) -> Path:
    """The network's ONNX file, made by torch at the first call and found again at later ones."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    network, unfinished = NETWORKS[name], folder / f"{name}.unfinished"
    feeds = {key: torch.from_numpy(array) for key, array in network.feeds(2).items()}
    unfinished.mkdir(exist_ok=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module(name),
            tuple(feeds.values()),
            unfinished / path.name,
            input_names=list(feeds),
            output_names=list(network.outputs),
            dynamic_shapes=_free_dimensions(name),
            dynamo=True,
            verbose=False,
        )
    # The weights' file goes first: whoever sees the model finds them.
    for made in sorted(unfinished.iterdir(), reverse=True):
        os.replace(made, folder / made.name)
    unfinished.rmdir()
    return path


def fill_biases(network: nn.Module) -> None:
    """Give biases of zeros small numbers, as trained networks have: the exporter drops zeros."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith("bias") and not weight.any():
                weight.normal_(std=BIAS)


def settle(network: nn.Module, *batch: torch.Tensor) -> None:
    """Give batch normalisations the statistics of one batch, so that activations keep their size.

    With those of an untrained network they would fade into denormal numbers, which are slow.
    """
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = None
    with torch.no_grad():
        network(*batch)
    network.eval()


def _mobilenet_v2() -> nn.Module:
    config = transformers.MobileNetV2Config(tf_padding=False, num_labels=CLASSES)
    return Logits(transformers.MobileNetV2ForImageClassification(config))


def _resnet50() -> nn.Module:
    config = transformers.ResNetConfig(num_labels=CLASSES)
    return Logits(transformers.ResNetForImageClassification(config))


def _vit_b16() -> nn.Module:
    config = transformers.ViTConfig(num_labels=CLASSES)
    return Logits(transformers.ViTForImageClassification(config))


def _bert_base() -> nn.Module:
    return Encoder(transformers.BertModel(transformers.BertConfig()))


def _gpt2() -> nn.Module:
    return Decoder(transformers.GPT2LMHeadModel(transformers.GPT2Config()))


_BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_v2": _mobilenet_v2,
    "resnet50": _resnet50,
    "vit_b16": _vit_b16,
    "bert_base": _bert_base,
    "gpt2_prefill": _gpt2,
    "gpt2_decode": _gpt2,
}


def _free_dimensions(name: str) -> tuple[Any, ...]:
    if name == "bert_base":
        return ({0: BATCH, 1: SEQUENCE},) * 3
    if name == "gpt2_prefill":
        return ({0: BATCH, 1: SEQUENCE},)
    if name == "gpt2_decode":
        return ({0: BATCH}, ({0: BATCH, 2: PAST},) * 2 * LAYERS)
    return ({0: BATCH},)
