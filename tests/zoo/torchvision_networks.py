"""Classifiers and segmenters of torchvision, narrow and shallow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torchvision import models
from torchvision.models import (
    convnext,
    densenet,
    efficientnet,
    inception,
    maxvit,
    mobilenetv2,
    mobilenetv3,
    regnet,
    resnet,
    segmentation,
    shufflenetv2,
    squeezenet,
    swin_transformer,
    vgg,
    video,
    vision_transformer,
)

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import Picked, images, scattered

SMALL = partial(models.MNASNet, alpha=0.15, num_classes=7)


def _mobilenet_v3() -> nn.Module:
    of = partial(mobilenetv3.InvertedResidualConfig, width_mult=1.0)
    blocks = [
        of(8, 3, 8, 8, True, "RE", 2, 1),
        of(8, 3, 24, 16, False, "RE", 2, 1),
        of(16, 5, 32, 16, True, "HS", 1, 2),
    ]
    return mobilenetv3.MobileNetV3(blocks, last_channel=32, num_classes=7)


def _efficientnet() -> nn.Module:
    of = partial(efficientnet.MBConvConfig, width_mult=1.0, depth_mult=1.0)
    blocks = [of(1, 3, 1, 8, 8, 1), of(4, 3, 2, 8, 16, 2), of(4, 5, 2, 16, 24, 1)]
    return efficientnet.EfficientNet(blocks, dropout=0.2, num_classes=7, last_channel=32)


def _efficientnet_v2() -> nn.Module:
    blocks = [
        efficientnet.FusedMBConvConfig(2, 3, 2, 8, 16, 2),
        efficientnet.MBConvConfig(4, 3, 2, 16, 24, 1),
    ]
    return efficientnet.EfficientNet(blocks, dropout=0.2, num_classes=7, last_channel=32)


def _regnet() -> nn.Module:
    params = regnet.BlockParams.from_init_params(5, 8, 8.0, 2.0, 8, se_ratio=0.25)
    return regnet.RegNet(params, num_classes=7, stem_width=8)


def _vgg() -> nn.Module:
    # Its own classifier has a hundred million weights, whatever the layers before it.
    with torch.device("meta"):
        model = vgg.VGG(nn.Identity(), 7, init_weights=False)
    model.features = vgg.make_layers([8, "M", 16, "M"], True)
    model.classifier = nn.Linear(16 * 49, 7)
    return model


def _swin(version: int) -> nn.Module:
    block = swin_transformer.SwinTransformerBlock
    merging = swin_transformer.PatchMerging
    if version == 2:
        block = swin_transformer.SwinTransformerBlockV2
        merging = swin_transformer.PatchMergingV2
    return swin_transformer.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=7, block=block, downsample_layer=merging
    )


def _convnext() -> nn.Module:
    of = convnext.CNBlockConfig
    return convnext.ConvNeXt([of(8, 16, 1), of(16, 32, 2), of(32, None, 1)], num_classes=7)


def _vit() -> nn.Module:
    return vision_transformer.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=7)


def _maxvit() -> nn.Module:
    return maxvit.MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 4, 0.0, num_classes=7, mlp_ratio=2)


def _backbone() -> nn.Module:
    layers = {"low": nn.Conv2d(3, 8, 3, stride=2, padding=1), "high": nn.Conv2d(8, 16, 3, 2, 1)}
    return models._utils.IntermediateLayerGetter(
        nn.ModuleDict(layers), {"low": "low", "high": "out"}
    )


def _deeplab() -> nn.Module:
    head = segmentation.deeplabv3.DeepLabHead(16, 5, (2, 3))
    return Picked(segmentation.DeepLabV3(_backbone(), head), "out")


def _fcn() -> nn.Module:
    return Picked(segmentation.FCN(_backbone(), segmentation.fcn.FCNHead(16, 5)), "out")


def _lraspp() -> nn.Module:
    layers = models._utils.IntermediateLayerGetter(
        nn.ModuleDict({"a": nn.Conv2d(3, 8, 3, 2, 1), "b": nn.Conv2d(8, 16, 3, 2, 1)}),
        {"a": "low", "b": "high"},
    )
    return Picked(segmentation.LRASPP(layers, 8, 16, 5, 12), "out", argument="input")


def _video() -> nn.Module:
    return video.resnet.VideoResNet(
        video.resnet.BasicBlock,
        [video.resnet.Conv2Plus1D] * 4,
        [1, 1, 1, 1],
        video.resnet.R2Plus1dStem,
        num_classes=7,
    )


CLASSIFIERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet basic": (lambda: resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], 7), 32),
    "resnext": (
        lambda: resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], 7, groups=8, width_per_group=4),
        32,
    ),
    "mobilenet v2": (lambda: mobilenetv2.MobileNetV2(7, width_mult=0.15), 32),
    "mobilenet v3": (_mobilenet_v3, 32),
    "mnasnet": (SMALL, 32),
    "efficientnet": (_efficientnet, 32),
    "efficientnet v2": (_efficientnet_v2, 32),
    "densenet": (lambda: densenet.DenseNet(8, (2, 2, 2), 16, num_classes=7), 32),
    "shufflenet v2": (lambda: shufflenetv2.ShuffleNetV2([1, 2, 1], [8, 16, 16, 32, 64], 7), 32),
    "regnet": (_regnet, 32),
    "squeezenet": (lambda: squeezenet.SqueezeNet("1_1", num_classes=7), 35),
    "inception": (
        lambda: inception.Inception3(7, aux_logits=False, transform_input=True, init_weights=False),
        75,
    ),
    "googlenet": (
        lambda: models.GoogLeNet(7, aux_logits=False, init_weights=False),
        32,
    ),
    "vgg": (_vgg, 29),
    "convnext": (_convnext, 32),
    "vit": (_vit, 32),
    "swin": (partial(_swin, 1), 32),
    "swin v2": (partial(_swin, 2), 32),
    "maxvit": (_maxvit, 32),
}
SEGMENTERS = {"deeplab v3": _deeplab, "fcn": _fcn, "lraspp": _lraspp}


def _classifiers() -> Iterator[Network]:
    for name, (build, size) in CLASSIFIERS.items():
        calls = [{"x": images(batch, 3, size, size)} for batch in (2, 3)]
        yield Network(name, partial(_scattered, build), calls, axes={"x": {0: "batch"}})


def _segmenters() -> Iterator[Network]:
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}
    for name, build in SEGMENTERS.items():
        calls = [{"x": images(2, 3, 32, 32)}, {"x": images(1, 3, 37, 45)}]
        yield Network(name, partial(_scattered, build), calls, axes=axes)


def _scattered(build: Callable[[], nn.Module]) -> nn.Module:
    return scattered(build())


def entries() -> Iterator[Entry]:
    clips = [{"x": images(batch, 3, 4, 16, 16)} for batch in (2, 1)]
    seen = Network("video resnet", lambda: scattered(_video()), clips, axes={"x": {0: "batch"}})
    yield from exports_of([*_classifiers(), *_segmenters(), seen])
