"""Small networks that write what exporters write of real ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.layers(x), dim=-1)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(),
            # The first normalisation is folded into its convolution, this one cannot be.
            nn.BatchNorm2d(12),
            nn.AvgPool2d(2, ceil_mode=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classify = nn.Linear(12, 5)

    def forward(self, image: Tensor) -> Tensor:
        return self.classify(torch.flatten(self.features(image), 1))


class Separable(nn.Module):
    """One residual block of a mobile network: widen, filter each channel, squeeze, narrow."""

    def __init__(self, channels: int = 6, hidden: int = 18) -> None:
        super().__init__()
        self.widen = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish()
        )
        self.filter = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.SiLU(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(hidden, 4, 1), nn.ReLU6(), nn.Conv2d(4, hidden, 1)
        )
        self.narrow = nn.Sequential(
            nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.filter(self.widen(image))
        return image + self.narrow(x * nn.functional.hardsigmoid(self.squeeze(x)))


class Attention(nn.Module):
    """Heads made by view and transpose, as most of the models in the wild have them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def mix(self, scores: Tensor, value: Tensor) -> Tensor:
        x = torch.matmul(torch.softmax(scores, dim=-1), value).transpose(1, 2).contiguous()
        batch, length, heads, depth = x.shape
        return self.merge(x.view(batch, length, heads * depth))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(part) for part in self.project(x).chunk(3, dim=-1))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        return self.mix(scores, value)


class CachedAttention(Attention):
    def forward(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (self.split(part) for part in self.project(x).chunk(3, dim=-1))
        key = torch.cat([past[0], key], dim=2)
        value = torch.cat([past[1], value], dim=2)
        before, total = past[0].shape[2], key.shape[2]
        visible = torch.arange(total)[None, :] <= torch.arange(before, total)[:, None]
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        scores = torch.where(visible, scores, torch.finfo(scores.dtype).min)
        return self.mix(scores, value), key, value


class Encoder(nn.Module):
    """A transformer encoder: pre-normalised attention and a GELU network, `layers` times."""

    def __init__(self, width: int = 16, heads: int = 4, layers: int = 1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": nn.LayerNorm(width),
                    "attention": Attention(width, heads),
                    "between": nn.LayerNorm(width),
                    "network": nn.Sequential(
                        nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
                    ),
                }
            )
            for _ in range(layers)
        )
        self.after = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block["attention"](block["before"](x))
            x = x + block["network"](block["between"](x))
        return self.after(x)


class Decoder(nn.Module):
    """Token ids and the keys and values of all earlier tokens in, the next token's logits out."""

    def __init__(self, vocabulary: int = 29, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(32, width)
        self.normalize = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.ModuleList(CachedAttention(width, heads) for _ in range(2))

    def forward(
        self,
        ids: Tensor,
        past_key_0: Tensor,
        past_value_0: Tensor,
        past_key_1: Tensor,
        past_value_1: Tensor,
    ) -> tuple[Tensor, ...]:
        before = past_key_0.shape[2]
        x = self.tokens(ids) + self.positions(torch.arange(before, before + ids.shape[1]))
        present: list[Tensor] = []
        pasts = ((past_key_0, past_value_0), (past_key_1, past_value_1))
        for attend, normalize, past in zip(self.attention, self.normalize, pasts, strict=False):
            mixed, key, value = attend(normalize(x), past)
            x = x + mixed
            present += [key, value]
        return torch.matmul(self.normalize[2](x), self.tokens.weight.T), *present


class Masks(nn.Module):
    """Padding, causal and window masks of computed sizes, and a mean over what they leave."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, width = x.shape
        place = torch.arange(length)
        padding = place[None, :] < lengths[:, None]
        causal = torch.full((length, length), float("-inf")).triu(1)
        window = torch.abs(place[:, None] - place[None, :]) <= 2
        bias = torch.where(window & padding[:, None, :], causal, torch.full((), -1e4))
        kept = padding[:, :, None].expand(batch, length, width)
        filled = torch.where(kept, x, torch.zeros_like(x))
        mean = filled.sum(dim=1) / torch.clamp(lengths[:, None].to(x.dtype), min=1.0)
        ones = torch.ones(batch, 1, dtype=x.dtype)
        return bias, torch.cat([mean, ones], dim=1)


class Scripted(nn.Module):
    """Control flow that depends on data, for `torch.jit.script`."""

    def __init__(self) -> None:
        super().__init__()
        self.positive = nn.Linear(4, 4)
        self.negative = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = torch.relu(self.positive(x))
            if x.shape[0] > 2:
                y = y * 2.0
        else:
            y = torch.tanh(self.negative(x)) - x
        return y


class Conditional(nn.Module):
    """The same choice, as `torch.cond` has it."""

    def __init__(self) -> None:
        super().__init__()
        self.positive = nn.Linear(4, 4)
        self.negative = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def when_positive(x: Tensor) -> Tensor:
            return torch.relu(self.positive(x))

        def otherwise(x: Tensor) -> Tensor:
            return torch.tanh(self.negative(x)) - x

        return torch.cond(x.sum() > 0, when_positive, otherwise, (x,))


class Spelled(nn.Module):
    """What exporters spell out where an opset has no operator for it, one after the other."""

    def __init__(self, width: int = 16, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        self.layer = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width // shared)
        self.value = nn.Linear(width, width // shared)
        self.channels = nn.Sequential(
            nn.Conv1d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.ConvTranspose1d(width, width, 3, padding=1, groups=2),
            nn.BatchNorm1d(width),
        )
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def split(self, x: Tensor, heads: int) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, heads, width // heads).transpose(1, 2)

    def repeat(self, x: Tensor) -> Tensor:
        batch, heads, length, depth = x.shape
        x = x[:, :, None].expand(batch, heads, self.shared, length, depth)
        return x.reshape(batch, heads * self.shared, length, depth)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        query = self.split(self.query(x), self.heads)
        key, value = (
            self.repeat(self.split(project(x), self.heads // self.shared))
            for project in (self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(query.shape[-1]) + mask
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value).transpose(1, 2)
        return mixed.reshape(x.shape)

    def root_mean_square(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attend(self.layer(x), mask)
        x = x + nn.functional.gelu(self.root_mean_square(x))
        x = x + nn.functional.gelu(x, approximate="tanh")
        x = x + nn.functional.mish(x) + x * torch.sigmoid(1.702 * x) + nn.functional.hardswish(x)
        return self.channels(x.transpose(1, 2)).transpose(1, 2)
