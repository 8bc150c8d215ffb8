"""What people write with torch beside layers: data-dependent sizes, sampling, transforms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of


class Nonzero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0.5)


NETWORKS = [
    Network(
        "nonzero",
        Nonzero,
        [{"x": torch.rand(rows, 5)} for rows in (3, 7)],
        axes={"x": {0: "rows"}},
    ),
]


def entries() -> Iterator[Entry]:
    yield from exports_of(NETWORKS)
