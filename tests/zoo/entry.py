"""What a family of the zoo consists of: models that an exporter writes, with calls of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """Inputs by their names in the file, and the source's own results where it computed them."""

    feeds: Feeds
    expected: Sequence[Any] | None = None


@dataclass(frozen=True)
class Entry:
    """A model by one exporter; `write` exports it to a path and returns at least one call."""

    name: str
    exporter: str
    write: Callable[[Path], Sequence[Call]]
    # Computes with fewer than 32 bits, or sums in an order that decides over whole steps.
    coarse: bool = False
    # Why results may part from onnxruntime's; then the source alone is the judge.
    onnxruntime_differs: str = ""
    # Why the standard asks for other results than onnxruntime's and the source's.
    standard_differs: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}, {self.exporter}"

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.exporter

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.name}-{self.exporter}".replace(" ", "_")


# A module of this folder for each, with a function `entries()`; its exporters are imported there.
FAMILIES: Mapping[str, str] = {
    "text encoders": "text_encoders",
    "text decoders": "text_decoders",
    "grouped decoders": "grouped_decoders",
    "sequence to sequence": "sequence_to_sequence",
    "boosting": "boosted_trees",
    "classical": "classical",
    "variants": "classical_variants",
    "pipelines": "pipelines",
    "convolutional": "convolutional",
    "vision": "vision_transformers",
    "segmentation": "segmentation",
    "audio": "audio",
    "detectors": "detectors",
    "quantized": "quantized",
    "vision variants": "vision_variants",
    "torchvision": "torchvision_networks",
    "functions": "torch_functions",
    "numerics": "torch_numerics",
    "images": "torch_images",
    "signals": "torch_signals",
    "control flow": "torch_control_flow",
    "recurrent": "recurrent",
    "generative models": "generative_models",
    "authored": "authored",
    "jax": "jax_functions",
    "tensorflow": "tensorflow_models",
}


def entries_of(family: str) -> list[Entry]:
    """Import a family's exporters and return its models."""
    entries: list[Entry] = list(import_module(f"tests.zoo.{FAMILIES[family]}").entries())
    return entries
