"""Primitives that move elements: padding moves with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.padding.axes import (
    Axis,
    Different,
    Layout,
    Unpaddable,
    has_padding,
    joined,
    reshaped,
    unpadded,
)


def broadcast_in_dim(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    source = dict(zip(pair.same("broadcast_dimensions"), pair.layouts[0], strict=True))
    true, padded = pair.result_shapes()
    layout = []
    for axis, size in enumerate(padded):
        operand = source.get(axis, unpadded(1))
        if (operand.true, operand.padded) == (true[axis], size):
            layout.append(operand)
        elif operand.padded == 1:
            layout.append(pair.result_axis(axis, uniform=True))
        else:
            raise Different("it broadcasts an axis for some sizes only")
    return [tuple(layout)], pair.unchanged


def iota(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    pair.require_same("dtype")
    along = pair.same("dimension")
    ndim = len(pair.result_shapes()[1])
    layout = tuple(pair.result_axis(axis, uniform=axis != along) for axis in range(ndim))
    return [layout], pair.unchanged


def reshape(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    if pair.same("dimensions") is not None:
        raise Unpaddable("it transposes and reshapes at once")
    (layout,), (_, shape) = pair.layouts, pair.result_shapes()
    if 0 in shape or all(axis.uniform or axis.padded == 1 for axis in layout):
        uniform = tuple(pair.result_axis(axis, uniform=True) for axis in range(len(shape)))
        return [uniform], pair.unchanged
    return [reshaped(layout, shape)], pair.unchanged


def squeeze(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    return [without(pair.layouts[0], pair.same("dimensions"))], pair.unchanged


def transpose(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    return [tuple(pair.layouts[0][axis] for axis in pair.same("permutation"))], pair.unchanged


def tile(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """Each copy overwrites the padding of the one before it."""
    (layout,) = pair.layouts
    axes, copied = [], {}
    for axis, before in enumerate(layout):
        times = pair.params["reps"][axis]
        if pair.proof.varies(pair.true.params["reps"][axis], times):
            if before.is_padded:
                raise Unpaddable("it repeats a padded axis by a number that depends on its size")
        elif before.is_padded and times != 1:
            require_prefixes(layout, [axis], "it repeats an axis")
            copied[axis] = pair.proof.size_slot(before.true)
        axes.append(before if times == 1 and before.is_padded else pair.result_axis(axis))

    def run(runtime_args: RuntimeArgs, x: Any) -> list[Any]:
        (result,) = pair.unchanged(runtime_args, x)
        for axis, size in copied.items():
            result = _copied(result, axis, x.shape[axis], runtime_args[size])
        return [result]

    return [tuple(axes)], run


def _copied(x: Any, axis: int, stride: int, size: Any) -> Any:
    """Move pieces that begin every `stride` elements to begin every `size` elements."""
    for i in range(1, x.shape[axis] // stride):
        piece = lax.slice_in_dim(x, i * stride, (i + 1) * stride, axis=axis)
        x = lax.dynamic_update_slice_in_dim(x, piece, i * size, axis)
    return x


def stack(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    layout = [joined(axes) for axes in zip(*pair.layouts, strict=True)]
    layout.insert(pair.same("axis"), unpadded(len(pair.layouts)))
    return [tuple(layout)], pair.unchanged


def unstack(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    layout = without(pair.layouts[0], [pair.same("axis")])
    return [layout] * len(pair.padded.outvars), pair.unchanged


def reverse(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """The padding lands in front, and the elements move over it."""
    (layout,) = pair.layouts
    moved = [axis for axis in pair.same("dimensions") if layout[axis].is_padded]
    require_prefixes(layout, moved, "it reverses an axis")
    sizes = {axis: pair.proof.size_slot(layout[axis].true) for axis in moved}

    def run(runtime_args: RuntimeArgs, x: Any) -> list[Any]:
        (result,) = pair.unchanged(runtime_args, x)
        for axis, size in sizes.items():
            result = shifted(result, axis, x.shape[axis] - runtime_args[size], x.shape[axis])
        return [result]

    return [layout], run


def concatenate(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """Each operand overwrites the padding of the one before it."""
    along = pair.same("dimension")
    others = [without(layout, [along]) for layout in pair.layouts]
    layout = [joined(axes) for axes in zip(*others, strict=True)]
    operands = [operand[along] for operand in pair.layouts]
    padded = [i for i, axis in enumerate(operands) if axis.is_padded]
    for operand in pair.layouts:
        require_prefixes(operand, [along], "it concatenates along an axis")
    sizes = (sum(axis.padded for axis in operands), sum(axis.true for axis in operands))
    layout.insert(along, Axis.of(*sizes, is_padded=bool(padded)))
    if not padded or padded == [len(operands) - 1]:
        return [tuple(layout)], pair.unchanged
    ends = accumulate(axis.true for axis in operands[:-1])
    starts = [pair.proof.size_slot(end) for end in ends]

    def run(runtime_args: RuntimeArgs, *arrays: Any) -> list[Any]:
        (result,) = pair.unchanged(runtime_args, *arrays)
        for start, array in zip(starts, arrays[1:], strict=True):
            result = lax.dynamic_update_slice_in_dim(result, array, runtime_args[start], along)
        return [result]

    return [tuple(layout)], run


def pad(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """The model's own padding value replaces ours behind the true elements."""
    layout, _ = pair.layouts
    axes, masked = [], []
    for i, widths in enumerate(pair.params["padding_config"]):
        pads_behind = pair.pads_behind("padding_config", i)
        if widths == (0, 0, 0) and not pads_behind:
            axes.append(layout[i])
            continue
        if layout[i].is_padded and pads_behind:
            masked.append(i)
        axes.append(pair.result_axis(i))
    changed = [i for i, axis in enumerate(axes) if axis is not layout[i]]
    require_prefixes(layout, changed, "it pads an axis")
    mask = pair.proof.mask(layout, masked)

    def run(runtime_args: RuntimeArgs, x: Any, value: Any) -> Sequence[Any]:
        return pair.unchanged(runtime_args, mask.fill(runtime_args, x, value), value)

    return [tuple(axes)], run


def without(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout of an array that lost these axes."""
    return tuple(axis for i, axis in enumerate(layout) if i not in axes)


def require_prefixes(layout: Layout, axes: Sequence[int], what: str) -> None:
    if any(not layout[axis].is_prefix for axis in axes):
        raise Unpaddable(f"{what} that was merged from two, one of them padded")


def shifted(x: Any, axis: int, start: Any, size: int) -> Any:
    """`size` elements of an axis from `start` on, with zeros beyond its end."""
    room = [(0, size if i == axis else 0) for i in range(x.ndim)]
    return lax.dynamic_slice_in_dim(jnp.pad(x, room), start, size, axis)


def batched(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """The last axes must have no padding; the others are a batch."""
    pair.require_same(*pair.params)
    inner = _INNER_AXES[pair.name](pair)
    if any(has_padding(layout[len(layout) - inner :]) for layout in pair.layouts):
        raise Unpaddable("it works on whole rows or matrices, and these are padded")
    batch = [layout[: len(layout) - inner] for layout in pair.layouts]
    common = tuple(joined(axes) for axes in zip(*batch, strict=True))
    results = []
    for index in range(len(pair.padded.outvars)):
        ndim = len(pair.result_shapes(index)[1])
        rest = (pair.result_axis(axis, index) for axis in range(len(common), ndim))
        results.append((*common, *rest))
    return results, pair.unchanged


_INNER_AXES: Mapping[str, Any] = {
    "fft": lambda pair: len(pair.params["fft_lengths"]),
    **dict.fromkeys(("lu", "triangular_solve", "cholesky", "qr", "svd", "eigh"), lambda pair: 2),
}

RULES: Mapping[str, Rule] = {
    "broadcast_in_dim": broadcast_in_dim,
    "iota": iota,
    "reshape": reshape,
    "squeeze": squeeze,
    "transpose": transpose,
    "tile": tile,
    "stack": stack,
    "unstack": unstack,
    "rev": reverse,
    "concatenate": concatenate,
    "pad": pad,
    **dict.fromkeys(_INNER_AXES, batched),
}
