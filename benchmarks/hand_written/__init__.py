"""The six networks as one would write them in plain JAX, the bar for what sardonyx compiles.

Weights are arguments, images are NHWC, batch normalisations are folded into the convolutions before
them, and operations have the form that XLA compiles best on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.hand_written import convolutional, transformer


@dataclass(frozen=True)
class HandWritten:
    """A function of weights and inputs, and the weights out of torch's state."""

    weights: Callable[[Mapping[str, Any]], dict[str, Any]]
    forward: Callable[..., Any]


NETWORKS: dict[str, HandWritten] = {
    "mobilenet_v2": HandWritten(convolutional.weights, convolutional.mobilenet_v2),
    "resnet50": HandWritten(convolutional.weights, convolutional.resnet50),
    "vit_b16": HandWritten(transformer.vit_weights, transformer.vit_b16),
    "bert_base": HandWritten(transformer.bert_weights, transformer.bert_base),
    "gpt2_prefill": HandWritten(transformer.gpt2_weights, transformer.gpt2),
    "gpt2_decode": HandWritten(transformer.gpt2_weights, transformer.gpt2),
}
