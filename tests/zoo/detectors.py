"""Detectors: heads as people write them by hand, and torchvision's own, all with NMS inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torchvision import models, ops
from torchvision.models import detection

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import images, scattered

CLASSES = 4


def _stem(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.SiLU(),
    )


class Anchored(nn.Module):
    """YOLO v5's head: boxes relative to anchors and cells, then NMS of the first image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.next = _stem(16), nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.heads = nn.ModuleList(nn.Conv2d(16, 2 * (5 + CLASSES), 1) for _ in range(2))
        anchors = torch.tensor([[[9.0, 12.0], [14.0, 8.0]], [[20.0, 26.0], [30.0, 18.0]]])
        self.register_buffer("anchors", anchors)

    def boxes(self, x: Tensor) -> Tensor:
        fine = self.stem(x)
        levels = []
        for level, (features, stride) in enumerate(((fine, 4), (self.next(fine), 8))):
            out = self.heads[level](features)
            batch, _, rows, columns = out.shape
            out = out.view(batch, 2, 5 + CLASSES, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
            y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            cells = torch.stack([x, y], -1).to(out.dtype)
            centre = (out[..., :2] * 2 - 0.5 + cells) * stride
            size = (out[..., 2:4] * 2) ** 2 * self.anchors[level].view(1, 2, 1, 1, 2)
            levels.append(torch.cat([centre, size, out[..., 4:]], -1).flatten(1, 3))
        return torch.cat(levels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.boxes(x)[0]
        scores, labels = (rows[:, 4:5] * rows[:, 5:]).max(1)
        corners = ops.box_convert(rows[:, :4], "cxcywh", "xyxy")
        chosen = scores > 0.2
        corners, scores, labels = corners[chosen], scores[chosen], labels[chosen]
        best = ops.nms(corners + 100 * labels[:, None], scores, 0.5)[:20]
        return corners[best], scores[best], labels[best]


class AnchorFree(nn.Module):
    """YOLO v8's head: a distribution over distances to the four sides, nothing chosen yet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _stem(16)
        self.sides, self.classes = nn.Conv2d(16, 32, 1), nn.Conv2d(16, CLASSES, 1)
        self.expected = nn.Conv2d(8, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        features = self.stem(x)
        batch, _, rows, columns = features.shape
        sides = self.sides(features).view(batch, 4, 8, rows * columns).transpose(1, 2)
        near, far = self.expected(sides.softmax(1)).view(batch, 4, -1).chunk(2, 1)
        y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
        cells = torch.stack([x, y]).view(1, 2, -1)
        first, second = cells - near, cells + far
        boxes = torch.cat([(first + second) / 2, second - first], 1) * 4
        return torch.cat([boxes, self.classes(features).flatten(2).sigmoid()], 1)


class SingleShot(nn.Module):
    """SSD's head: offsets from boxes that are constants, NMS of each class in a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _stem(16)
        self.offsets, self.scores = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 2 * CLASSES, 1)
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        priors = [torch.stack([x, y, side + 0 * x, side + 0 * y], -1) for side in (2.0, 3.5)]
        self.register_buffer("priors", torch.stack(priors, 2).view(-1, 4) / 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.stem(x)
        offsets = self.offsets(features).permute(0, 2, 3, 1).reshape(-1, 4)
        scores = self.scores(features).permute(0, 2, 3, 1).reshape(-1, CLASSES).softmax(1)
        centre = self.priors[:, :2] + 0.1 * offsets[:, :2] * self.priors[:, 2:]
        size = self.priors[:, 2:] * torch.exp(0.2 * offsets[:, 2:])
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1).clamp(0, 1)
        found = []
        for label in range(1, CLASSES):
            best = ops.nms(boxes, scores[:, label], 0.4)[:5]
            found.append((boxes[best], scores[best, label], torch.full_like(best, label)))
        every, ranked, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        top, order = ranked.topk(6)
        return every[order], top, labels[order]


class Pooled(nn.Module):
    """Regions of interest of boxes that are inputs: aligned by half a pixel, or pooled as well."""

    def __init__(self, aligned: bool) -> None:
        super().__init__()
        self.stem, self.out, self.aligned = _stem(8), nn.Linear(8 * 9, 5), aligned

    def forward(self, x: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
        features = self.stem(x)
        regions = ops.roi_align(features, boxes, (3, 3), 0.25, 2, aligned=self.aligned)
        scores = self.out(regions.flatten(1))
        if self.aligned:
            return (scores,)
        return scores, ops.roi_pool(features, boxes, (2, 2), 0.25)


class Deformed(nn.Module):
    def __init__(self, modulated: bool) -> None:
        super().__init__()
        self.offset = nn.Conv2d(3, 18, 3, padding=1)
        self.mask = nn.Conv2d(3, 9, 3, padding=1) if modulated else None
        self.convolution = ops.DeformConv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        mask = None if self.mask is None else torch.sigmoid(self.mask(x))
        return F.relu(self.convolution(x, 2 * self.offset(x), mask))


class Keypoints(nn.Module):
    """CenterNet: peaks of a heat map, the best of them, and what other maps say there."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _stem(16)
        self.heat, self.size = nn.Conv2d(16, CLASSES, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.stem(x)
        heat = torch.sigmoid(self.heat(features))
        heat = heat * (F.max_pool2d(heat, 3, stride=1, padding=1) == heat)
        scores, places = heat.flatten(1).topk(5)
        columns = heat.shape[3]
        area = heat.shape[2] * columns
        labels, cells = places // area, places % area
        sizes = self.size(features).flatten(2)
        sizes = sizes.gather(2, cells.unsqueeze(1).expand(-1, 2, -1))
        where = torch.stack([cells % columns, cells // columns], 1) + sizes
        return where, scores, labels


def _backbone(width: int = 16) -> nn.Module:
    backbone = nn.Sequential(_stem(16), nn.Conv2d(16, width, 3, stride=2, padding=1), nn.ReLU())
    backbone.out_channels = width
    return backbone


class Detected(nn.Module):
    """A detector of torchvision on one image."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        results: Any = self.model([x])
        results = results[1] if torch.jit.is_scripting() else results
        return tuple(results[0][name] for name in self.names)


FOUND = ("boxes", "labels", "scores")
ONE_STAGE = {"score_thresh": 0.001, "topk_candidates": 30, "detections_per_img": 10}
SIZE = {"min_size": 64, "max_size": 96, "box_detections_per_img": 10}


def _anchors() -> detection.rpn.AnchorGenerator:
    return detection.rpn.AnchorGenerator(((8, 16, 32),), ((0.5, 1.0, 2.0),))


def _faster() -> nn.Module:
    model = detection.FasterRCNN(
        _backbone(),
        rpn_anchor_generator=_anchors(),
        box_roi_pool=ops.MultiScaleRoIAlign(["0"], 3, 2),
        box_head=detection.faster_rcnn.TwoMLPHead(16 * 9, 24),
        box_predictor=detection.faster_rcnn.FastRCNNPredictor(24, CLASSES),
        rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_test=20,
        **SIZE,
    )
    return scattered(Detected(model, *FOUND), 2.0)


def _mask() -> nn.Module:
    model = detection.MaskRCNN(
        _backbone(),
        rpn_anchor_generator=_anchors(),
        box_roi_pool=ops.MultiScaleRoIAlign(["0"], 3, 2),
        box_head=detection.faster_rcnn.TwoMLPHead(16 * 9, 24),
        box_predictor=detection.faster_rcnn.FastRCNNPredictor(24, CLASSES),
        mask_roi_pool=ops.MultiScaleRoIAlign(["0"], 4, 2),
        mask_head=detection.mask_rcnn.MaskRCNNHeads(16, (8,), 1),
        mask_predictor=detection.mask_rcnn.MaskRCNNPredictor(8, 8, CLASSES),
        rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_test=20,
        **SIZE,
    )
    return scattered(Detected(model, *FOUND, "masks"), 2.0)


def _retina() -> nn.Module:
    model = detection.RetinaNet(
        _backbone(), CLASSES, 64, 96, anchor_generator=_anchors(), **ONE_STAGE
    )
    return scattered(Detected(model, *FOUND), 1.3)


def _fcos() -> nn.Module:
    anchors = detection.rpn.AnchorGenerator(((8,),), ((1.0,),))
    model = detection.FCOS(_backbone(32), CLASSES, 64, 96, anchor_generator=anchors, **ONE_STAGE)
    return scattered(Detected(model, *FOUND), 2.0)


def _ssd_lite() -> nn.Module:
    model = models.detection.ssdlite320_mobilenet_v3_large(
        weights=None,
        weights_backbone=None,
        num_classes=CLASSES,
        detections_per_img=10,
        topk_candidates=20,
    )
    return scattered(Detected(model, *FOUND), 1.1)


AREA = {0: "batch", 2: "height", 3: "width"}
ONE = {2: "height", 3: "width"}


def _of_batches() -> Iterator[Network]:
    by_name: dict[str, tuple[Callable[[], nn.Module], dict[int, str], tuple[str, ...]]] = {
        "yolo with anchors": (Anchored, ONE, FOUND),
        "yolo without anchors": (AnchorFree, AREA, ("y",)),
        "keypoints": (Keypoints, AREA, ("places", "scores", "labels")),
        "deformed": (lambda: Deformed(False), AREA, ("y",)),
        "deformed, modulated": (lambda: Deformed(True), AREA, ("y",)),
    }
    for name, (build, axes, outputs) in by_name.items():
        batches = (1, 1) if axes is ONE else (2, 3)
        sizes = zip(batches, ((32, 32), (48, 40)), strict=True)
        calls = [{"x": images(batch, 3, *size)} for batch, size in sizes]

        def drawn(build: Callable[[], nn.Module] = build) -> nn.Module:
            return scattered(build(), 2.0)

        yield Network(name, drawn, calls, outputs, {"x": axes})
    calls = [{"x": images(1, 3, 32, 32)}]
    yield Network("single shot", lambda: scattered(SingleShot(), 2.0), calls, FOUND)


def _of_regions() -> Iterator[Network]:
    calls = []
    for batch, count in ((2, 5), (3, 2)):
        corners = 32 * images(count, 4).view(count, 2, 2).sort(1).values.flatten(1)
        which = torch.arange(count).remainder(batch).to(corners.dtype)
        calls.append(
            {"x": images(batch, 3, 32, 32), "boxes": torch.cat([which[:, None], corners], 1)}
        )
    axes = {"x": {0: "batch"}, "boxes": {0: "boxes"}}
    for aligned in (False, True):
        name = "regions aligned by half a pixel" if aligned else "regions"

        def drawn(aligned: bool = aligned) -> nn.Module:
            return scattered(Pooled(aligned))

        yield Network(name, drawn, calls, ("y",) if aligned else ("y", "pooled"), axes)


def _of_torchvision() -> Iterator[Network]:
    for name, build, outputs in (
        ("faster rcnn", _faster, FOUND),
        ("mask rcnn", _mask, (*FOUND, "masks")),
        ("retinanet", _retina, FOUND),
        ("fcos", _fcos, FOUND),
        ("ssdlite", _ssd_lite, FOUND),
    ):
        calls = [{"x": images(3, 64, 64)}, {"x": images(3, 64, 80)}]
        yield Network(name, build, calls, outputs, {"x": {1: "height", 2: "width"}})


def networks() -> list[Network]:
    return [*_of_batches(), *_of_regions(), *_of_torchvision()]


def entries() -> Iterator[Entry]:
    yield from exports_of(networks())
