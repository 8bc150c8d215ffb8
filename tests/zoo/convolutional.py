"""Convolutional networks as people write them by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import Chain, images, scattered, signals


def _block(inner: int, outer: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), norm(outer), nn.ReLU())


class UNet(nn.Module):
    """Two levels; the way up is a transposed convolution or a bilinear resize."""

    def __init__(self, bilinear: bool, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.into = _block(3, 8, norm)
        self.down = nn.ModuleList([_block(8, 16, norm), _block(16, 32, norm)])
        self.raised = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
                    nn.Conv2d(2 * width, width, 1),
                )
                if bilinear
                else nn.ConvTranspose2d(2 * width, width, 2, stride=2)
                for width in (16, 8)
            ]
        )
        self.up = nn.ModuleList([_block(32, 16, norm), _block(16, 8, norm)])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        seen = []
        for down in self.down:
            seen.append(x)
            x = down(F.max_pool2d(x, 2))
        for raised, up in zip(self.raised, self.up, strict=True):
            x, other = raised(x), seen.pop()
            # Odd sizes lose a row on the way down.
            missing = other.shape[-2] - x.shape[-2], other.shape[-1] - x.shape[-1]
            x = F.pad(x, (0, missing[1], 0, missing[0]))
            x = up(torch.cat([other, x], 1))
        return self.out(x)


class DilatedHead(nn.Module):
    """DeepLab's pyramid of dilated convolutions, with a pooled branch that is resized back."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.branches = nn.ModuleList(
            nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.pooled = nn.Conv2d(16, 8, 1)
        self.out = nn.Conv2d(32, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-2:]
        x = F.relu(self.stem(x))
        pooled = F.interpolate(
            self.pooled(F.adaptive_avg_pool2d(x, 1)), x.shape[-2:], mode="bilinear"
        )
        x = torch.cat([*(each(x) for each in self.branches), pooled], 1)
        return F.interpolate(self.out(x), size, mode="bilinear", align_corners=False).argmax(1)


class SuperResolution(nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, padding=2)
        self.last = nn.Conv2d(16, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        fine = self.shuffle(self.last(torch.tanh(self.first(x))))
        return fine + F.interpolate(x, scale_factor=self.factor, mode="bicubic")


def style_generator() -> Chain:
    """CycleGAN's generator: reflected borders and InstanceNorm."""
    return Chain(
        nn.ReflectionPad2d(3),
        nn.Conv2d(3, 8, 7),
        nn.InstanceNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.InstanceNorm2d(16, affine=True),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.LeakyReLU(0.2),
        nn.ReplicationPad2d(1),
        nn.Conv2d(8, 3, 3),
        nn.Tanh(),
    )


def noise_generator() -> Chain:
    """DCGAN's generator, and its discriminator after it."""
    return Chain(
        nn.ConvTranspose2d(16, 16, 4, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, groups=4),
        nn.PReLU(8),
        nn.ConvTranspose2d(8, 3, 3, stride=3, padding=2, dilation=2),
        nn.Tanh(),
        nn.Conv2d(3, 8, 4, stride=2, padding=1),
        nn.CELU(),
        nn.Flatten(),
        nn.Linear(968, 1),
        nn.Sigmoid(),
    )


class VariationalAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(512, 16)
        )
        self.decoder = nn.Sequential(
            nn.Linear(8, 512),
            nn.Unflatten(1, (8, 8, 8)),
            nn.GroupNorm(4, 8),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1)
        return torch.sigmoid(self.decoder(mean + noise * torch.exp(spread / 2))), divergence


class CausalBlock(nn.Module):
    """A temporal convolutional network's block: padded on the left, weight-normalised."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.left = 2 * dilation
        convolution = nn.Conv1d(inner, outer, 3, dilation=dilation)
        self.convolution = nn.utils.parametrizations.weight_norm(convolution)
        self.beside = nn.Conv1d(inner, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.convolution(F.pad(x, (self.left, 0)))) + self.beside(x)


def volumes() -> Chain:
    return Chain(
        nn.Conv3d(2, 8, 3, stride=(1, 2, 2), padding=1),
        nn.BatchNorm3d(8),
        nn.ELU(),
        nn.MaxPool3d(2, ceil_mode=True),
        nn.ConvTranspose3d(8, 4, 2, stride=2),
        nn.InstanceNorm3d(4),
        nn.Upsample(scale_factor=(1, 2, 2), mode="trilinear"),
        nn.AvgPool3d(3, stride=2, padding=1, count_include_pad=False),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
        nn.LogSoftmax(1),
    )


class Shuffle(nn.Module):
    """ShuffleNet's exchange of channels between groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.view(batch, self.groups, channels // self.groups, height, width)
        return x.transpose(1, 2).reshape(batch, channels, height, width)


def separable() -> Chain:
    """Depthwise and pointwise convolutions between groups of channels that are shuffled."""
    return Chain(
        nn.Conv2d(3, 12, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(3, 12),
        nn.Hardswish(),
        nn.Conv2d(12, 12, 5, padding=2, groups=12),
        Shuffle(3),
        nn.Conv2d(12, 24, 1, groups=3),
        nn.Mish(),
        nn.LPPool2d(2, 2),
        nn.LocalResponseNorm(3),
        nn.Conv2d(24, 8, (1, 3), padding="same"),
        nn.Hardsigmoid(),
        nn.AvgPool2d(3, stride=2, ceil_mode=True, padding=1),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Softmax(1),
    )


class Unpooled(nn.Module):
    """SegNet's decoder: what max pooling chose goes back to where it came from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x, places = F.max_pool2d(F.relu(self.first(x)), 2, return_indices=True)
        return self.last(F.max_unpool2d(x, places, 2))


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Sequential(
            nn.Conv2d(1, 4, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.angle = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        grid = F.affine_grid(self.angle(self.place(x)).view(-1, 2, 3), list(x.shape), False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


class Patches(nn.Module):
    """Attention over unfolded patches, folded back: `im2col` and `col2im`."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(48, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = F.unfold(x, 4, stride=4).transpose(1, 2)
        mixed, _ = self.mix(rows, rows, rows, need_weights=False)
        return F.fold(mixed.transpose(1, 2), (16, 16), 4, stride=4)


class FourierLayer(nn.Module):
    """A Fourier neural operator's layer: complex weights on the low frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 5, 5, 2))
        self.beside = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = torch.view_as_real(torch.fft.rfft2(x))[:, :, :5, :5]
        (real, imaginary), (first, second) = low.unbind(-1), self.weight.unbind(-1)
        rule = "bixy,ioxy->boxy"
        mixed = torch.stack(
            [
                torch.einsum(rule, real, first) - torch.einsum(rule, imaginary, second),
                torch.einsum(rule, real, second) + torch.einsum(rule, imaginary, first),
            ],
            -1,
        )
        mixed = F.pad(mixed, (0, 0, 0, 4, 0, 11))
        back = torch.fft.irfft2(torch.view_as_complex(mixed), s=(16, 16))
        return F.gelu(back + self.beside(x))


class TextLines(nn.Module):
    """CRNN: columns of an image become the steps of an LSTM, and then letters."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Conv2d(8, 8, (8, 3))
        )
        self.read = nn.LSTM(8, 12, bidirectional=True)
        self.letters = nn.Linear(24, 11)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.read(self.columns(x).squeeze(2).permute(2, 0, 1))
        return F.log_softmax(self.letters(steps), 2)


class Excited(nn.Module):
    """Squeeze and excitation, a convolution whose kernels each image computes, Softplus."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular")
        self.scale, self.kernels = nn.Linear(8, 8), nn.Linear(8, 8 * 9)

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(self.first(x))
        mean = x.mean((2, 3))
        x = x * torch.sigmoid(self.scale(mean))[:, :, None, None]
        batch, channels, height, width = x.shape
        kernels = self.kernels(mean).reshape(batch * channels, 1, 3, 3)
        x = x.reshape(1, batch * channels, height, width)
        x = F.conv2d(x, kernels, padding=1, groups=batch * channels)
        return x.reshape(batch, channels, height, width)


BATCH, SIZE = {0: "batch"}, {2: "height", 3: "width"}
AREA = BATCH | SIZE


def _on_images(
    name: str,
    build: Callable[[], nn.Module],
    sizes: list[tuple[int, ...]],
    axes: dict[int, str] = AREA,
) -> Network:
    return Network(
        name, lambda: scattered(build()), [{"x": images(*s)} for s in sizes], axes={"x": axes}
    )


def _vae() -> Network:
    calls = [{"x": images(n, 1, 16, 16), "noise": signals(n, 8)} for n in (2, 3)]
    axes = {"x": BATCH, "noise": BATCH}
    return Network(
        "vae", lambda: scattered(VariationalAutoencoder()), calls, ("y", "divergence"), axes
    )


def _tcn() -> Network:
    def build() -> nn.Module:
        blocks = [CausalBlock(inner, 8, 2**i) for i, inner in enumerate((3, 8, 8))]
        return scattered(Chain(*blocks, nn.Conv1d(8, 2, 1), nn.AvgPool1d(2)))

    calls = [{"x": signals(n, 3, length)} for n, length in ((2, 20), (1, 33))]
    return Network("tcn", build, calls, axes={"x": {0: "batch", 2: "time"}})


def networks() -> list[Network]:
    return [
        _on_images("unet transposed", lambda: UNet(False), [(2, 3, 32, 32), (1, 3, 48, 36)]),
        _on_images("unet bilinear", lambda: UNet(True), [(2, 3, 32, 32), (1, 3, 26, 21)]),
        _on_images(
            "unet instance norm",
            lambda: UNet(True, nn.InstanceNorm2d),
            [(2, 3, 32, 32), (2, 3, 16, 24)],
            SIZE,
        ),
        _on_images("deeplab", DilatedHead, [(2, 3, 32, 32), (1, 3, 45, 39)]),
        _on_images("super resolution", lambda: SuperResolution(3), [(2, 1, 12, 12), (1, 1, 9, 14)]),
        _on_images("style generator", style_generator, [(2, 3, 16, 16), (2, 3, 24, 20)], SIZE),
        _on_images("noise generator", noise_generator, [(2, 16, 1, 1), (5, 16, 1, 1)], BATCH),
        _vae(),
        _tcn(),
        _on_images("volumes", volumes, [(2, 2, 7, 16, 16), (1, 2, 7, 16, 16)], BATCH),
        _on_images("separable", separable, [(2, 3, 33, 33), (3, 3, 33, 33)], BATCH),
        _on_images("unpooled", Unpooled, [(2, 3, 16, 16), (3, 3, 16, 16)], BATCH),
        _on_images(
            "spatial transformer", SpatialTransformer, [(2, 1, 20, 20), (3, 1, 20, 20)], BATCH
        ),
        _on_images("patches", Patches, [(2, 3, 16, 16), (1, 3, 16, 16)], BATCH),
        _on_images("fourier layer", FourierLayer, [(2, 4, 16, 16), (3, 4, 16, 16)], BATCH),
        _on_images(
            "text lines", TextLines, [(2, 1, 16, 24), (1, 1, 16, 40)], {0: "batch", 3: "width"}
        ),
        _on_images("excited", Excited, [(2, 3, 12, 12), (2, 3, 15, 11)], SIZE),
    ]


def entries() -> Iterator[Entry]:
    yield from exports_of(networks())
