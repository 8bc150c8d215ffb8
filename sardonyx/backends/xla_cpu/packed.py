"""Weights in the order in which XLA's kernels for CPUs read them, turned once and not at each call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from sardonyx.backends.base import Spec
from sardonyx.backends.epilogue import Epilogue
from sardonyx.backends.xla_cpu import platforms
from sardonyx.backends.xla_cpu.convolution import Layout, turns_weights


@dataclass(frozen=True)
class TurnedConvolution:
    """A convolution, and perhaps a bias, by filters whose channels come last."""

    weight: Spec
    layout: Layout
    groups: int

    @property
    def packed(self) -> Spec:
        """The filters of all groups: (*kernel, C / groups, M)."""
        count, channels, *kernel = self.weight.shape
        return Spec((*kernel, channels, count), self.weight.dtype)

    def pack(self, weight: Any) -> Any:
        """The filters of a weight on the host, or within a program."""
        turned = np if isinstance(weight, np.ndarray) else jnp
        return turned.moveaxis(weight, (1, 0), (-2, -1)).copy()

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        """The convolution, and the bias if there is one."""
        weight = jnp.moveaxis(packed, (-2, -1), (1, 0))
        y = platforms.convolution(x, weight, **self.layout._asdict(), groups=self.groups)
        for bias in others:
            y = y + bias.reshape(-1, *(1,) * self.layout.rank)
        return y


def convolution(
    x: Spec,
    weight: Spec,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int,
    epilogue: Epilogue,
) -> TurnedConvolution | None:
    """Where the filters would have to be turned at each call; None where nothing is gained."""
    layout = Layout(tuple(strides), tuple((head, tail) for head, tail in pads), tuple(dilations))
    if epilogue.activation or epilogue.addend or not math.prod(x.shape) * math.prod(weight.shape):
        return None
    is_turned = turns_weights((x.shape[0], *x.shape[2:], x.shape[1]), weight.shape, layout, groups)
    return TurnedConvolution(weight, layout, groups) if is_turned else None
