"""Ten small networks, each with something of its own to differentiate."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as everybody calls it)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16),
            nn.SiLU(),
            nn.LayerNorm(16),
            nn.Linear(16, 8),
            nn.GELU(),
            nn.Linear(8, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.layers(x), dim=-1)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 8, 3, dilation=2, padding=2),
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2, stride=1),
        )
        self.classify = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x).mean((2, 3)))


class Separable(nn.Module):
    """Depthwise, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
        self.squeeze, self.excite = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)
        self.pointwise = nn.Conv2d(6, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.hardswish(self.depthwise(x))
        gate = F.hardsigmoid(self.excite(F.relu6(self.squeeze(F.adaptive_avg_pool2d(h, 1)))))
        return self.pointwise(h * gate + x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.groups, self.instances = nn.GroupNorm(2, 8), nn.InstanceNorm2d(4, affine=True)
        self.slope = nn.PReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.instances(self.second(self.slope(self.groups(self.first(x)))))


class Upscaling(nn.Module):
    """Down, up again in two ways, and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 3, 4, stride=2, padding=1)
        self.out = nn.Conv2d(9, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.elu(self.down(x))
        larger = F.interpolate(h, scale_factor=2.0, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.out(torch.cat([self.up(h), larger], 1)))


class LongMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(3, 5, bidirectional=True, batch_first=True)
        self.out = nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.recurrent(x)[0])


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(3, 5, num_layers=2, batch_first=True)
        self.out = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.out(self.recurrent(x)[0][:, -1]))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.before, self.after = nn.LayerNorm(8), nn.LayerNorm(8)
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.before(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.narrow(F.gelu(self.wide(self.after(x)), approximate="tanh"))


class Decoder(nn.Module):
    """Causal, with embeddings that are also the last layer, RMS normalisation and rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.joint, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.scale
        q, k, v = self.joint(h).reshape(*ids.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
        angle = torch.arange(ids.shape[1])[:, None] / torch.tensor([1.0, 10.0])
        q, k = (_rotated(part, angle.cos(), angle.sin()) for part in (q, k))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (x + self.out(h.transpose(1, 2).flatten(2))) @ self.tokens.weight.T


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x[..., :2], x[..., 2:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


class Mixture(nn.Module):
    """Gates, the two best of them, a sum of products, and functions from all over."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.Parameter(torch.randn(4, 6, 5) / 2)
        self.power = nn.Parameter(torch.rand(5) + 1)

    def forward(self, x: Tensor) -> Tensor:
        scores, chosen = torch.topk(self.gate(x), 2)
        shares = torch.zeros(x.shape[0], 4).scatter(1, chosen, scores.softmax(-1))
        mixed = torch.einsum("be,ei,eio->bo", shares, x.new_ones(4, 6), self.experts)
        mixed = mixed + torch.einsum("be,bi,eio->bo", shares, x, self.experts)
        bounded = F.softplus(mixed).clamp(0.1, 3.0) ** self.power
        return torch.where(x[:, :5] > 0, torch.log1p(bounded), torch.erf(bounded)) + mixed.cumsum(1)
