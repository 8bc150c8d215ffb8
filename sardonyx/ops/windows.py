"""The windows of convolution and pooling over the spatial axes."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array, Operand
from sardonyx.backends.windows import WindowLayout
from sardonyx.ops.definition import Host, Ints
from sardonyx.ops.options import require_one_of


class Windows(NamedTuple):
    """The layout of windows over an input, axis by axis."""

    spatial: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: tuple[tuple[int, int], ...]
    # The number of windows, and how far the last one extends beyond the padding.
    sizes: Ints
    overhang: Ints

    @property
    def layout(self) -> WindowLayout:
        """What a backend has to know of them."""
        past = zip(self.pads, self.overhang, strict=True)
        pads = tuple([(head, tail + more) for (head, tail), more in past])
        return WindowLayout(self.kernel, self.strides, self.dilations, pads)

    def padded(self, xp: Backend, x: Array, value: Operand) -> Array:
        """Return `x` padded with `value` wherever a window extends beyond its border."""
        widths = self.layout.pads
        outer = [(0, 0)] * (x.ndim - len(widths))
        return xp.pad(x, [*outer, *widths], value) if any(map(any, widths)) else x

    def without_idle_taps(self) -> Windows:
        """Return the same windows without the taps that lie in padding in every window.

        This is only valid for reductions that ignore padding. A kernel far larger than its input,
        with which some networks average the whole input, then costs no more than the input.
        """
        layout = (self.spatial, self.kernel, self.strides, self.dilations, self.pads, self.sizes)
        axes = [_without_idle_taps(*along) for along in zip(*layout, strict=True)]
        kernel, pads = zip(*axes, strict=True)
        return self._replace(kernel=kernel, pads=pads, overhang=(0,) * len(kernel))

    def counts(self, *, include_pads: bool) -> list[Host]:
        """Return how many elements windows have along each axis, with or without padding.

        Their product is the number of elements; there can be too many windows to write it down.
        """
        per_axis = []
        layout = (self.sizes, self.kernel, self.strides, self.dilations, self.pads, self.spatial)
        for size, side, stride, dilation, (head, tail), length in zip(*layout, strict=True):
            at = np.arange(size) * stride - head
            first, end = (-head, length + tail) if include_pads else (0, length)
            per_axis.append(
                _steps_below(end - at, dilation, side) - _steps_below(first - at, dilation, side)
            )
        return per_axis


def _without_idle_taps(
    length: int, side: int, stride: int, dilation: int, pads: tuple[int, int], size: int
) -> tuple[int, tuple[int, int]]:
    """Return the number of taps that ever meet the input, and the padding that they need."""
    head, _ = pads
    before = min(max(head - (size - 1) * stride, 0) // dilation, side - 1)
    after = max((side - 1) * dilation + 1 - head - max(length, 1), 0) // dilation
    used, head = side - before - after, head - before * dilation
    reach = (size - 1) * stride + (used - 1) * dilation + 1 - head
    return used, (head, max(reach - length, 0))


def _steps_below(
    distance: np.ndarray[Any, np.dtype[np.int64]], step: int, most: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count those of 0, step, 2 * step, ... (`most` terms) that are less than each distance."""
    below: np.ndarray[Any, np.dtype[np.int64]] = np.clip(-(-distance // step), 0, most)
    return below


def windows_over(
    spatial: Ints,
    kernel: Ints,
    ceil_mode: int = 0,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Windows:
    """Return the windows over axes of the lengths `spatial` for ONNX's attributes."""
    rank = len(spatial)
    kernel = positive("kernel_shape", kernel, rank)
    strides = positive("strides", strides, rank)
    dilations = positive("dilations", dilations, rank)
    pairs = pad_pairs(pads, rank)
    check_auto_pad(auto_pad)
    axes = [
        _along_axis(n, (k - 1) * d + 1, s, pair, auto_pad=auto_pad, ceil=bool(ceil_mode))
        for n, k, s, d, pair in zip(spatial, kernel, strides, dilations, pairs, strict=True)
    ]
    ends, sizes, overhang = zip(*axes, strict=True)
    return Windows(spatial, kernel, strides, dilations, ends, sizes, overhang)


# The attributes `auto_pad`, `dilations`, `pads` and `strides`.
Layout: TypeAlias = Annotated[Any, windows_over]


def _along_axis(
    length: int, extent: int, stride: int, pads: tuple[int, int], *, auto_pad: str, ceil: bool
) -> tuple[tuple[int, int], int, int]:
    """Return the padding, the number of windows and the overhang along one axis."""
    if auto_pad.startswith("SAME"):
        size = -(-length // stride)
        if size < 1:
            raise ValueError(
                f"a window over {extent} elements does not fit an axis of {length}, which "
                f"auto_pad {auto_pad} leaves as it is"
            )
        pads = split_padding(max((size - 1) * stride + extent - length, 0), auto_pad)
        return pads, size, 0
    if auto_pad == "VALID":
        # Without padding, ONNX counts only whole windows, even with ceil_mode.
        pads, ceil = (0, 0), False
    room = length + sum(pads) - extent
    size = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (size - 1) * stride >= length + pads[0]:
        size -= 1  # no window starts in the padding behind the input
    if size < 1:
        raise ValueError(
            f"a window over {extent} elements does not fit an axis of {length} padded by {pads}"
        )
    return pads, size, max((size - 1) * stride - room, 0)


def split_padding(total: int, auto_pad: str) -> tuple[int, int]:
    """Split `total` into head and tail; `auto_pad` says which is larger if it is odd."""
    less, more = total // 2, total - total // 2
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def positive(name: str, values: Ints | None, rank: int) -> Ints:
    """Return one positive number per spatial axis; 1 by default."""
    if rank < 1:
        raise ValueError("the input has no spatial axes; it needs at least three axes in all")
    values = (1,) * rank if values is None else values
    if len(values) != rank or min(values) < 1:
        raise ValueError(f"{name} {values} must be {rank} positive numbers, one per spatial axis")
    return values


def pad_pairs(pads: Ints | None, rank: int) -> list[tuple[int, int]]:
    """Return ONNX's list of all heads and then all tails as pairs."""
    pads = (0,) * (2 * rank) if pads is None else pads
    if len(pads) != 2 * rank or min(pads) < 0:
        raise ValueError(f"pads {pads} must be {2 * rank} numbers, none of them negative")
    return list(zip(pads[:rank], pads[rank:], strict=True))


def check_auto_pad(auto_pad: str) -> None:
    require_one_of("auto_pad", auto_pad, ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
