"""Masks, depths and boxes for images by transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import images, scattered, signals
from tests.zoo.vision_transformers import WIDTH, classifier

BACKBONE: Mapping[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
DECODER: Mapping[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_queries": 6,
    "num_labels": 5,
}
BOXES = ("logits", "pred_boxes")
AREA = {"x": {0: "batch", 2: "height", 3: "width"}}
BATCH = {"x": {0: "batch"}}


def _detr(name: str, **more: Any) -> Callable[[], nn.Module]:
    stages = ["stage2", "stage3", "stage4"] if "num_feature_levels" in more else ["stage4"]
    backbone = transformers.ResNetConfig(**BACKBONE, out_features=stages)
    config = getattr(transformers, f"{name}Config")(**DECODER, **more, backbone_config=backbone)
    return classifier(f"{name}ForObjectDetection", config, outputs=BOXES)


def _rt_detr() -> Callable[[], nn.Module]:
    backbone = transformers.RTDetrResNetConfig(
        **BACKBONE, out_features=["stage2", "stage3", "stage4"]
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 24, 32],
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        hidden_expansion=0.5,
        d_model=32,
        num_queries=7,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_labels=5,
    )
    # Scores must not be close to each other: the best of them are chosen.
    return classifier("RTDetrForObjectDetection", config, outputs=BOXES, gain=2.0)


def _yolos() -> Callable[[], nn.Module]:
    config = transformers.YolosConfig(
        **{**WIDTH, "image_size": [32, 32]},
        num_detection_tokens=5,
        use_mid_position_embeddings=True,
    )
    return classifier("YolosForObjectDetection", config, outputs=BOXES)


def _segformer() -> Callable[[], nn.Module]:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        mlp_ratios=[2, 2, 2, 2],
        decoder_hidden_size=16,
        num_labels=5,
    )
    return classifier("SegformerForSemanticSegmentation", config)


def _mask2former() -> Callable[[], nn.Module]:
    backbone = transformers.SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 2, 4],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=24,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=24,
        num_queries=5,
        num_labels=4,
    )
    outputs = ("class_queries_logits", "masks_queries_logits")
    return classifier("Mask2FormerForUniversalSegmentation", config, outputs=outputs)


def _dpt() -> Callable[[], nn.Module]:
    config = transformers.DPTConfig(
        **{**WIDTH, "num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 12, 16, 24],
        fusion_hidden_size=16,
    )
    return classifier("DPTForDepthEstimation", config, outputs=("predicted_depth",))


def _depth_anything() -> Callable[[], nn.Module]:
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=56,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 12, 16, 24],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    return classifier("DepthAnythingForDepthEstimation", config, outputs=("predicted_depth",))


def _upscaler() -> Callable[[], nn.Module]:
    config = transformers.Swin2SRConfig(
        image_size=16,
        embed_dim=16,
        depths=[2],
        num_heads=[2],
        window_size=4,
        upscale=2,
    )
    return classifier("Swin2SRForImageSuperResolution", config, outputs=("reconstruction",))


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Any, list[tuple[int, int, int, int]]]] = {
    "detr": (_detr("Detr"), AREA, [(2, 3, 64, 64), (1, 3, 96, 70)]),
    "conditional detr": (_detr("ConditionalDetr"), AREA, [(2, 3, 64, 64), (1, 3, 96, 70)]),
    "deformable detr": (
        _detr("DeformableDetr", num_feature_levels=3),
        BATCH,
        [(2, 3, 64, 64), (3, 3, 64, 64)],
    ),
    "rt detr": (_rt_detr(), BATCH, [(2, 3, 64, 64), (3, 3, 64, 64)]),
    "yolos": (_yolos(), AREA, [(2, 3, 32, 32), (1, 3, 48, 40)]),
    "segformer": (_segformer(), AREA, [(2, 3, 64, 64), (1, 3, 96, 64)]),
    "mask2former": (_mask2former(), BATCH, [(2, 3, 64, 64), (1, 3, 64, 64)]),
    "dpt": (_dpt(), BATCH, [(2, 3, 32, 32), (1, 3, 32, 32)]),
    "depth anything": (_depth_anything(), AREA, [(2, 3, 56, 56), (1, 3, 84, 70)]),
    "swin2sr": (_upscaler(), BATCH, [(2, 3, 16, 16), (1, 3, 16, 16)]),
}


class Segmented(nn.Module):
    """SAM's second half: embedded images and points become masks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, image_embeddings: Tensor, input_points: Tensor, input_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        results = self.model(
            image_embeddings=image_embeddings,
            input_points=input_points,
            input_labels=input_labels,
        )
        return results.pred_masks, results.iou_scores


class Embedded(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model.get_image_embeddings(x)


def _sam() -> nn.Module:
    vision = {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 8,
        "window_size": 3,
        "global_attn_indexes": [1],
        "num_pos_feats": 8,
        "mlp_dim": 48,
    }
    prompts = {
        "hidden_size": 16,
        "image_size": 64,
        "patch_size": 8,
        "mask_input_channels": 4,
    }
    masks = {
        "hidden_size": 16,
        "mlp_dim": 24,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }
    config = transformers.SamConfig(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=masks
    )
    return scattered(transformers.SamModel(config))


def _sam_parts() -> Iterator[Network]:
    calls = [{"x": images(n, 3, 64, 64)} for n in (2, 1)]
    yield Network("sam encoder", lambda: Embedded(_sam()), calls, axes=BATCH)
    prompts = []
    for count, points in ((2, 3), (3, 1)):
        labels = torch.arange(count * points).reshape(1, count, points) % 2
        labels[0, 0, -1] = -1
        prompts.append(
            {
                "image_embeddings": signals(1, 16, 8, 8),
                "input_points": 64 * images(1, count, points, 2),
                "input_labels": labels,
            }
        )
    several = {1: "prompts", 2: "points"}
    axes = {"input_points": several, "input_labels": several}
    yield Network("sam masks", lambda: Segmented(_sam()), prompts, ("masks", "scores"), axes)


def networks() -> Iterator[Network]:
    for name, (build, axes, sizes) in MODELS.items():
        outputs = BOXES if name.endswith("detr") or name == "yolos" else ("y",)
        outputs = ("classes", "masks") if name == "mask2former" else outputs
        yield Network(name, build, [{"x": images(*size)} for size in sizes], outputs, axes)
    yield from _sam_parts()


def entries() -> Iterator[Entry]:
    yield from exports_of(list(networks()))
