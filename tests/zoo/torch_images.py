"""Resampling and windows with torch: grids, interpolation, unfolding, pooling, pixels moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch.nn import functional

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of, function

SIZES: dict[str, dict[str, Any]] = {
    "to a size": {"size": (4, 11)},
    "by two factors": {"scale_factor": (1.5, 0.6)},
    "by a factor": {"scale_factor": 2.0},
}
ALIGNED_FRACTION = (
    "torch writes factors that give a fractional size; onnxruntime aligns the last element of the "
    "rounded size, the standard's own test resize_downsample_scales_linear_align_corners that of "
    "the fractional size"
)


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    networks = [*_grids(), *_interpolations(), *_windows(), *_pools(), *_moves()]
    for entry in exports_of(networks):
        aligns = "aligned by two factors" in entry.name
        yield replace(entry, standard_differs=ALIGNED_FRACTION) if aligns else entry


def _images(*sizes: tuple[int, ...]) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(2, 4, *size)} for size in sizes]


def _grids() -> Iterator[Network]:
    calls = [
        {"x": torch.randn(2, 3, *size), "grid": torch.rand(2, 4, 5, 2) * 2.6 - 1.3}
        for size in ((6, 7), (9, 8))
    ]
    modes = product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"))
    for mode, padding in modes:
        for aligned in (False, True):
            yield function(
                f"grid_sample {mode} {padding}{' aligned' * aligned}",
                lambda x, grid, mode=mode, padding=padding, aligned=aligned: functional.grid_sample(
                    x, grid, mode, padding, aligned
                ),
                *calls,
            )
    volume = {"x": torch.randn(1, 2, 4, 5, 6), "grid": torch.rand(1, 3, 2, 4, 3) * 2 - 1}
    yield function(
        "grid_sample of volumes",
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        volume,
    )
    turns = [{"theta": torch.randn(n, 2, 3)} for n in (1, 3)]
    for aligned in (False, True):
        yield function(
            f"affine_grid{' aligned' * aligned}",
            lambda theta, aligned=aligned: functional.affine_grid(
                theta, [theta.shape[0], 3, 4, 5], aligned
            ),
            *turns,
        )
    yield function(
        "spatial transformer",
        lambda x: functional.grid_sample(
            x, functional.affine_grid(x[:, :2, 0, :3], [2, 4, 6, 7], False), align_corners=False
        ),
        *_images((6, 7)),
    )


def _interpolations() -> Iterator[Network]:
    sizes = (6, 7), (9, 8)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        corners = (False, True) if mode.startswith("bi") else (None,)
        for aligned in corners:
            name = f"{mode}{' aligned' if aligned else ''}"
            options = {"mode": mode, "align_corners": aligned}
            for change, by in SIZES.items():
                yield function(
                    f"interpolate {name} {change}",
                    lambda x, by=by, options=options: functional.interpolate(x, **by, **options),
                    *_images(*sizes),
                )
    for mode in ("bilinear", "bicubic"):
        yield function(
            f"interpolate {mode} antialiased",
            lambda x, mode=mode: functional.interpolate(x, (4, 5), mode=mode, antialias=True),
            *_images(*sizes),
        )
    yield function(
        "interpolate linear",
        lambda x: functional.interpolate(x, scale_factor=2.5, mode="linear"),
        *_images((6,), (9,)),
    )
    yield function(
        "interpolate trilinear",
        lambda x: functional.interpolate(x, size=(3, 8, 5), mode="trilinear"),
        *_images((4, 5, 6)),
    )
    yield function(
        "interpolate to another's size",
        lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear"),
        *(
            {"x": torch.randn(1, 2, 3, 4), "y": torch.randn(1, 2, *size)}
            for size in ((7, 9), (8, 5))
        ),
    )
    yield function(
        "scale recomputed",
        lambda x: functional.interpolate(
            x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True
        ),
        *_images(*sizes),
    )


def _windows() -> Iterator[Network]:
    sizes = (6, 7), (9, 8)
    yield function(
        "unfold",
        lambda x: functional.unfold(x, 3, dilation=2, padding=2, stride=2),
        *_images(*sizes),
    )
    yield function(
        "fold",
        lambda x: functional.fold(x, (5, 6), (2, 3), padding=(0, 1)),
        {"x": torch.randn(2, 12, 24)},
    )
    yield function("unfold of a dimension", lambda x: x.unfold(2, 3, 2).mean(-1), *_images((9, 4)))
    weight = torch.randn(6, 4, 3, 3)
    for mode in ("same", "valid"):
        yield function(
            f"conv2d {mode}",
            lambda x, mode=mode: functional.conv2d(x, weight, padding=mode, dilation=2),
            *_images(*sizes),
        )
    grouped = torch.randn(4, 2, 3, 3)
    yield function(
        "conv_transpose2d",
        lambda x: functional.conv_transpose2d(x, grouped, None, 2, 1, 1, groups=2),
        *_images(*sizes),
    )
    yield function(
        "conv1d", lambda x: functional.conv1d(x, weight[..., 0], stride=2), *_images((9,))
    )
    kernel = torch.randn(5, 4, 2, 2, 2)
    yield function("conv3d", lambda x: functional.conv3d(x, kernel), *_images((3, 4, 5)))


def _pools() -> Iterator[Network]:
    sizes = (7, 9), (8, 8)
    yield function(
        "max_pool2d",
        lambda x: functional.max_pool2d(x, 3, 2, 1, 1, ceil_mode=True),
        *_images(*sizes),
    )
    yield function(
        "max_pool2d with indices",
        lambda x: functional.max_pool2d(x, 2, return_indices=True),
        *_images(*sizes),
    )
    yield function(
        "max_unpool2d",
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
        *_images((8, 8)),
    )
    for ceil, counts in product((False, True), (False, True)):
        yield function(
            f"avg_pool2d{' ceil' * ceil}{' counts padding' * counts}",
            lambda x, ceil=ceil, counts=counts: functional.avg_pool2d(x, 3, 2, 1, ceil, counts),
            *_images(*sizes),
        )
    yield function(
        "adaptive_avg_pool2d", lambda x: functional.adaptive_avg_pool2d(x, (2, 4)), *_images((8, 8))
    )
    yield function(
        "adaptive to other sizes",
        lambda x: functional.adaptive_avg_pool2d(x, (3, 5)),
        *_images((7, 9)),
    )
    yield function(
        "adaptive_max_pool2d", lambda x: functional.adaptive_max_pool2d(x, (1, 1)), *_images(*sizes)
    )
    yield function(
        "lp_pool2d", lambda x: functional.lp_pool2d(x.abs() + 0.1, 2, 2), *_images(*sizes)
    )
    yield function(
        "local_response_norm", lambda x: functional.local_response_norm(x, 3), *_images(*sizes)
    )


def _moves() -> Iterator[Network]:
    sizes = (6, 8), (8, 4)
    yield function("pixel_shuffle", lambda x: functional.pixel_shuffle(x, 2), *_images(*sizes))
    yield function("pixel_unshuffle", lambda x: functional.pixel_unshuffle(x, 2), *_images(*sizes))
    yield function("channel_shuffle", lambda x: functional.channel_shuffle(x, 2), *_images(*sizes))
    yield function(
        "pad reflect 2d", lambda x: functional.pad(x, (1, 2, 3, 0), "reflect"), *_images(*sizes)
    )
    yield function(
        "pad circular 2d", lambda x: functional.pad(x, (1, 2, 3, 0), "circular"), *_images(*sizes)
    )
    yield function("rot90", lambda x: torch.rot90(x, 1, (2, 3)), *_images(*sizes))
    yield function("instance_norm", lambda x: functional.instance_norm(x), *_images(*sizes))
    slopes = torch.rand(4)
    yield function("prelu", lambda x: functional.prelu(x, slopes), *_images(*sizes))
    yield function("patches", _patches, *_images((8, 8)))
    yield function("windows and back", _windowed, *_images((8, 8)))


def _patches(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5).flatten(1, 2).flatten(2)


def _windowed(x: torch.Tensor) -> torch.Tensor:
    """Shift, attend inside of windows and shift back, as Swin does."""
    shifted = torch.roll(x, (-2, -2), (2, 3)).unfold(2, 4, 4).unfold(3, 4, 4)
    tokens = shifted.flatten(4).transpose(-1, 1)
    mixed = torch.softmax(tokens @ tokens.transpose(-1, -2), -1) @ tokens
    return torch.roll(mixed.mean(-1), (2,), (2,))
