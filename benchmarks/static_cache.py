"""GPT-2 whose keys and values are buffers of a fixed size, written in the graph at a position.

`index_copy` is the form that transformers writes itself, `scatter` one axis of the same.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers.cache_utils import Cache, StaticLayer

from benchmarks.exports import SEED
from benchmarks.models import HEAD_SIZE, HEADS, LAYERS, TOKENS, caches

SIZE = 384
FORMS = ("index_copy", "scatter")


class ScatteredLayer(StaticLayer):
    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(keys.shape[2]) + self.cumulative_length
        index = places[None, None, :, None].expand_as(keys)
        self.cumulative_length = self.cumulative_length + keys.shape[2]
        self.keys = self.keys.scatter(2, index, keys)
        self.values = self.values.scatter(2, index, values)
        return self.keys, self.values


class Step(nn.Module):
    """Logits and the buffers after new tokens at a position; buffers come and go as a list."""

    def __init__(self, network: nn.Module, form: str) -> None:
        super().__init__()
        self.network = network
        self.layer = {"index_copy": StaticLayer, "scatter": ScatteredLayer}[form]

    def forward(
        self, input_ids: torch.Tensor, position: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        layers = [
            self._layer(keys, values, position)
            for keys, values in zip(past[::2], past[1::2], strict=True)
        ]
        made = self.network(input_ids, past_key_values=Cache(layers=layers), use_cache=True)
        return made.logits, *(part for layer in layers for part in (layer.keys, layer.values))

    def _layer(
        self, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor
    ) -> StaticLayer:
        layer = self.layer(keys.shape[2])
        layer.lazy_initialization(keys, values)
        # Copies, because the layer writes in place, and inputs must stay as they are.
        layer.keys, layer.values = keys.clone(), values.clone()
        layer.cumulative_length = position.clone()
        return layer


def export(form: str, folder: Path) -> Path:
    """The ONNX file, made at the first call and found again at later ones."""
    path = folder / f"gpt2_static_{form}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    step = Step(transformers.GPT2LMHeadModel(transformers.GPT2Config()), form).eval()
    past = [torch.zeros(1, HEADS, SIZE, HEAD_SIZE) for _ in range(2 * LAYERS)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            step,
            (torch.zeros(1, 1, dtype=torch.int64), torch.tensor(TOKENS), *past),
            path,
            input_names=["input_ids", "position", *caches("past")],
            output_names=["logits", *caches("present")],
            dynamo=True,
            verbose=False,
        )
    return path
