"""Models of the other families in older and newer opsets, and in float16 and float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from tests.zoo import audio, convolutional, detectors, segmentation, vision_transformers
from tests.zoo.entry import Entry
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, exports_of

OLD = {
    "unet transposed": (9, 11, 16),
    "unet bilinear": (11, 13),
    "deeplab": (10, 12),
    "super resolution": (11, 17),
    "separable": (9, 14),
    "style generator": (11,),
    "yolo with anchors": (11, 15),
    "single shot": (10, 13),
    "regions": (16,),
    "vit eager": (12, 14),
    "swin": (13,),
    "segformer": (11, 17),
    "wav2vec2": (14,),
    "whisper encoder eager": (13,),
}
NEW = {
    "unet transposed": (18, 22),
    "yolo without anchors": (21,),
    "vit": (18, 23),
    "whisper encoder sdpa": (23, 24),
}
HALVES = ("unet transposed", "vit eager", "whisper encoder eager")
# Peaks of a heat map are not distinct in float16.
DOUBLES = (*HALVES, "separable", "keypoints")


def entries() -> Iterator[Entry]:
    modules = audio, convolutional, detectors, segmentation, vision_transformers
    by_name = {each.name: each for module in modules for each in module.networks()}
    for exporter, opsets in ((TORCHSCRIPT, OLD), (DYNAMO, NEW)):
        for name, versions in opsets.items():
            yield from exports_of([_at(by_name[name], each, exporter) for each in versions])
    yield from exports_of([_of(by_name[name], torch.float64) for name in DOUBLES])
    yield from exports_of([_of(by_name[name], torch.float16) for name in HALVES], coarse=True)


def _at(network: Network, opset: int, exporter: str) -> Network:
    name = f"{network.name} opset {opset}"
    return replace(network, name=name, opset=opset, exporters=(exporter,))


def _of(network: Network, dtype: torch.dtype) -> Network:
    def build() -> nn.Module:
        return network.build().to(dtype)

    calls = [{name: value.to(dtype) for name, value in call.items()} for call in network.calls]
    name = f"{network.name} {str(dtype).removeprefix('torch.')}"
    return replace(network, name=name, build=build, calls=calls, exporters=(TORCHSCRIPT,))
