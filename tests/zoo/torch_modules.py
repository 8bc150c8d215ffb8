"""Parts of torch models: weights under which results vary, inputs, and forms of modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def scattered(module: nn.Module, gain: float = 1.0) -> nn.Module:
    """Draw the weights of a module so that signals neither fade nor become equal; return it."""
    generator = torch.Generator().manual_seed(0)

    def normal(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator).to(like.dtype)

    with torch.no_grad():
        for each in module.parameters():
            if each.dim() > 1:
                each.copy_(gain * normal(each) / max(1, each[0].numel()) ** 0.5)
            else:
                each.add_(0.1 * normal(each))
        for name, each in module.named_buffers():
            if name.endswith("running_mean"):
                each.copy_(0.2 * normal(each))
            elif name.endswith("running_var"):
                each.copy_(0.5 + torch.rand(each.shape, generator=generator))
            elif name.endswith("codebook.embed"):
                each.copy_(normal(each))
    return module.eval()


def images(*shape: int) -> torch.Tensor:
    """Return sixteenths from 0 to 1, few enough to pack well, that depend on the shape alone."""
    return torch.randint(0, 17, shape, generator=_of_shape(shape)) / 16


def signals(*shape: int) -> torch.Tensor:
    """Return normal values, rounded to quarters, that depend on the shape alone."""
    return (4 * torch.randn(shape, generator=_of_shape(shape))).round() / 4


def tokens(vocabulary: int, *shape: int) -> torch.Tensor:
    """Return whole numbers from 1 to the vocabulary's last that depend on the shape alone."""
    return torch.randint(1, vocabulary, shape, generator=_of_shape(shape))


def _of_shape(shape: Sequence[int]) -> torch.Generator:
    return torch.Generator().manual_seed(sum(shape))


class Chain(nn.Sequential):
    """A sequence of modules whose input is named as those of others: x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


class Picked(nn.Module):
    """A module of one input, by its name, whose named results are returned as a tuple."""

    def __init__(self, module: nn.Module, *names: str, argument: str = "x") -> None:
        super().__init__()
        self.module, self.names, self.argument = module, names, argument

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = self.module(**{self.argument: x})
        return tuple(results[name] for name in self.names)
