"""Encoders of images by transformers: classifiers, and towers of images beside text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import transformers
from torch import Tensor, nn

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import Picked, images, scattered, tokens

WIDTH: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 7,
}
WINDOWS: Mapping[str, Any] = {
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
    "num_labels": 7,
}
TEXT: Mapping[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "bos_token_id": 0,
    "eos_token_id": 59,
    "pad_token_id": 1,
}


def classifier(
    name: str,
    config: Any,
    attention: str = "",
    outputs: tuple[str, ...] = ("logits",),
    gain: float = 1.0,
) -> Callable[[], nn.Module]:
    """Return a function that builds the class of that name from a configuration."""

    def build() -> nn.Module:
        kind = getattr(transformers, name)
        options = {"attn_implementation": attention} if attention else {}
        model = kind._from_config(config, **options)
        return scattered(Picked(model, *outputs, argument="pixel_values"), gain)

    return build


class Seen(nn.Module):
    """CLIP or SigLIP whole: how well each text belongs to each image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        results = self.model(
            input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask
        )
        return results.logits_per_image, results.text_embeds, results.image_embeds


def _pairs(name: str, build: Callable[[], nn.Module]) -> Network:
    calls = []
    for texts, length, pictures in ((2, 6, 3), (3, 9, 2)):
        mask = tokens(3, texts, length).clamp(0, 1)
        mask[0, length - 2 :] = 0
        feeds = {
            "input_ids": tokens(60, texts, length),
            "pixel_values": images(pictures, 3, 32, 32),
            "attention_mask": mask,
        }
        feeds["input_ids"][:, length - 3] = 59
        calls.append(feeds)
    text = {0: "texts", 1: "length"}
    axes = {"input_ids": text, "pixel_values": {0: "images"}, "attention_mask": text}
    return Network(name, build, calls, ("scores", "texts", "images"), axes)


def _clip() -> nn.Module:
    config = transformers.CLIPConfig(
        text_config={**TEXT, "projection_dim": 24},
        vision_config={**WIDTH, "projection_dim": 24},
        projection_dim=24,
    )
    return scattered(Seen(transformers.CLIPModel(config)))


def _siglip() -> nn.Module:
    config = transformers.SiglipConfig(text_config=dict(TEXT), vision_config=dict(WIDTH))
    return scattered(Seen(transformers.SiglipModel(config)))


class Reconstructed(nn.Module):
    """A masked autoencoder whose order of patches is an input, as it else is random."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        results = self.model(pixel_values=pixel_values, noise=noise)
        return results.logits, results.mask


def _autoencoder() -> Network:
    def build() -> nn.Module:
        config = transformers.ViTMAEConfig(
            **WIDTH,
            decoder_hidden_size=24,
            decoder_num_hidden_layers=1,
            decoder_num_attention_heads=2,
            decoder_intermediate_size=32,
        )
        return scattered(Reconstructed(transformers.ViTMAEForPreTraining(config)))

    calls = [{"pixel_values": images(n, 3, 32, 32), "noise": images(n, 16)} for n in (2, 3)]
    batch = {0: "batch"}
    axes = {"pixel_values": batch, "noise": batch}
    return Network("vit mae", build, calls, ("pixels", "mask"), axes)


def _vit(attention: str) -> Callable[[], nn.Module]:
    return classifier("ViTForImageClassification", transformers.ViTConfig(**WIDTH), attention)


def _beit() -> Callable[[], nn.Module]:
    config = transformers.BeitConfig(**WIDTH, use_relative_position_bias=True)
    return classifier("BeitForImageClassification", config)


def _convnext(name: str) -> Callable[[], nn.Module]:
    config = getattr(transformers, f"{name}Config")(
        hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=7
    )
    return classifier(f"{name}ForImageClassification", config)


def _mobile() -> Callable[[], nn.Module]:
    config = transformers.MobileViTConfig(
        image_size=32,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=4,
        mlp_ratio=1.5,
        num_labels=7,
    )
    return classifier("MobileViTForImageClassification", config)


def _levit() -> Callable[[], nn.Module]:
    config = transformers.LevitConfig(
        image_size=64,
        hidden_sizes=[16, 32, 48],
        num_attention_heads=[2, 2, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
        num_labels=7,
    )
    return classifier("LevitForImageClassification", config)


def _dinov2() -> Callable[[], nn.Module]:
    width = {key: value for key, value in WIDTH.items() if key != "intermediate_size"}
    config = transformers.Dinov2Config(**width, mlp_ratio=2, use_swiglu_ffn=True)
    return classifier("Dinov2Model", config, outputs=("last_hidden_state", "pooler_output"))


def _swin(name: str) -> Callable[[], nn.Module]:
    config = getattr(transformers, f"{name}Config")(**WINDOWS)
    return classifier(f"{name}ForImageClassification", config)


def _cvt() -> Callable[[], nn.Module]:
    config = transformers.CvtConfig(
        embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3], num_labels=7
    )
    return classifier("CvtForImageClassification", config)


CLASSIFIERS: Mapping[str, tuple[Callable[[], nn.Module], int]] = {
    "vit": (_vit("sdpa"), 32),
    "vit eager": (_vit("eager"), 32),
    "deit": (
        classifier("DeiTForImageClassificationWithTeacher", transformers.DeiTConfig(**WIDTH)),
        32,
    ),
    "swin": (_swin("Swin"), 32),
    "swin v2": (_swin("Swinv2"), 32),
    "beit": (_beit(), 32),
    "convnext": (_convnext("ConvNext"), 32),
    "convnext v2": (_convnext("ConvNextV2"), 32),
    "mobilevit": (_mobile(), 32),
    "levit": (_levit(), 64),
    "cvt": (_cvt(), 32),
    "poolformer": (
        classifier(
            "PoolFormerForImageClassification",
            transformers.PoolFormerConfig(
                hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=7
            ),
        ),
        64,
    ),
}


def _classifiers() -> Iterator[Network]:
    for name, (build, size) in CLASSIFIERS.items():
        calls = [{"x": images(batch, 3, size, size)} for batch in (2, 3)]
        yield Network(name, build, calls, axes={"x": {0: "batch"}})
    calls = [{"x": images(2, 3, 32, 32)}, {"x": images(1, 3, 48, 40)}]
    area = {"x": {0: "batch", 2: "height", 3: "width"}}
    yield Network("dinov2 of any size", _dinov2(), calls, ("y", "pooled"), area)


def networks() -> list[Network]:
    pairs = [_pairs("clip", _clip), _pairs("siglip", _siglip)]
    return [*_classifiers(), *pairs, _autoencoder()]


def entries() -> Iterator[Entry]:
    yield from exports_of(networks())
