"""How the windows of a convolution lie on its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.backends import windows


class ConvolutionLayout(NamedTuple):
    """The options of a convolution, one per spatial axis, and its groups of channels."""

    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    groups: int = 1

    @classmethod
    def of(cls, *, strides: Any, pads: Any, dilations: Any, groups: int) -> ConvolutionLayout:
        """The options of `Backend.convolution`, in a form that can be hashed."""
        pairs = tuple((head, tail) for head, tail in pads)
        return cls(tuple(strides), pairs, tuple(dilations), groups)

    @property
    def rank(self) -> int:
        return len(self.strides)

    @property
    def is_unpadded(self) -> bool:
        return not any(map(any, self.pads))

    def divided(self) -> tuple[ConvolutionLayout, ConvolutionLayout]:
        """The layouts along the first axis and along the others, for one group."""
        first, rest = zip(*((each[:1], each[1:]) for each in self[:3]), strict=True)
        return ConvolutionLayout(*first), ConvolutionLayout(*rest)

    def sizes(self, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are on each axis."""
        padded = [n + sum(ends) for n, ends in zip(spatial, self.pads, strict=True)]
        return windows.output_sizes(padded, kernel, self.strides, self.dilations)
