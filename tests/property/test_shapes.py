"""Operators that move elements, or give the same elements another shape, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    chosen,
    drawn_array,
    drawn_axes,
    drawn_axis,
    drawn_shape,
    drawn_types,
    one_in,
    parameters,
    placed,
)


def drawn_input(draw: Draw, op: str, opset: int, **limits: Any) -> np.ndarray:
    return drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, **limits))


# -- the same elements under another shape --------------------------------------------------------


def shape(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset)
    ends = {"start": range(-7, 8), "end": range(-7, 8)} if opset >= 15 else {}
    return Case(op, opset, (x,), chosen(draw, ends), **placed(draw, [x]))


def reshape(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset)
    target = list(draw(st.permutations(x.shape)))
    if one_in(draw, 2):
        target = [*target, 1]
    elif len(target) > 1 and one_in(draw, 2):
        target = [target[0] * target[1], *target[2:]]
    if target and one_in(draw, 2):
        target[draw(st.integers(0, len(target) - 1))] = draw(st.sampled_from([-1, 0, 4]))
    if opset < 5 and not target:
        target = [1]  # An attribute holds no empty list that still has a type.
    flag = chosen(draw, {"allowzero": [0, 1]}) if opset >= 14 else {}
    return parameters(draw, op, opset, [x], {"shape": target}, since=5, attributes=flag)


def flatten(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, least=1)
    axes = range(0 if opset < 11 else -x.ndim, x.ndim + 1)
    return Case(op, opset, (x,), chosen(draw, {"axis": axes}), **placed(draw, [x]))


def squeeze(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset)
    single = [axis for axis, size in enumerate(x.shape) if size == 1]
    axes = draw(st.lists(st.sampled_from(single), unique=True, min_size=1)) if single else []
    if one_in(draw, 12):
        axes = [*axes, draw(st.integers(0, 6))]
    if opset >= 11 and axes and one_in(draw, 2):
        axes = [axes[0] - x.ndim, *axes[1:]]
    given = {"axes": axes} if axes and draw(st.booleans()) else {}
    return parameters(draw, op, opset, [x], given, since=13)


def unsqueeze(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, most=4)
    rank = x.ndim + draw(st.integers(1, 2))
    places = st.integers(0 if opset < 11 else -rank, rank - 1)
    axes = draw(st.lists(places, unique_by=lambda a: a % rank, min_size=1, max_size=rank - x.ndim))
    if one_in(draw, 16):
        axes = [*axes, axes[0]]
    return parameters(draw, op, opset, [x], {"axes": axes}, since=13)


# -- joining, cutting, repeating ------------------------------------------------------------------


def concat(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, least=1)
    axis = drawn_axis(draw, x.ndim)
    others = []
    for _ in range(draw(st.integers(0, 3))):
        along = draw(st.integers(0, 3))
        sizes = [along if i == axis % x.ndim else size for i, size in enumerate(x.shape)]
        others.append(drawn_array(draw, x.dtype, tuple(sizes)))
    if others and one_in(draw, 16):
        others[-1] = others[-1][..., None]
    inputs = (x, *others)
    return Case(op, opset, inputs, {"axis": axis}, **placed(draw, inputs))


def split(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, least=1)
    axis = draw(st.integers(0 if opset < 11 else -x.ndim, x.ndim - 1))
    size = x.shape[axis]
    count = draw(st.integers(1, 4))
    given, attributes = {}, {"axis": axis} if axis or draw(st.booleans()) else {}
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=count - 1, max_size=count - 1)))
    parts = np.diff([0, *cuts, size]).tolist()
    if one_in(draw, 12):
        parts[0] += 1
    if draw(st.booleans()):
        given = {"split": parts}
    elif opset >= 18:
        attributes["num_outputs"] = count
    if not given and opset < 18 and size % count:
        count = 1
    return parameters(draw, op, opset, [x], given, since=13, attributes=attributes, outputs=count)


def expand(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, most=4)
    whole = [draw(st.integers(1, 3)) if size == 1 else size for size in x.shape]
    target = draw(st.lists(st.integers(0, 2), max_size=2)) + whole
    target = [1 if one_in(draw, 4) else size for size in target][draw(st.integers(0, 1)) :]
    if target and one_in(draw, 12):
        target[-1] = 4
    return parameters(draw, op, opset, [x], {"shape": target}, since=0)


def tile(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, most=5)
    repeats = [draw(st.integers(0, 3)) for _ in x.shape]
    if one_in(draw, 16):
        repeats = [*repeats, 1]
    return parameters(draw, op, opset, [x], {"repeats": repeats}, since=0)


# -- padding, and other moves ---------------------------------------------------------------------


def pad(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, least=1, most=4)
    modes = ["constant", "reflect", "edge", *(["wrap"] if opset >= 19 else [])]
    mode = draw(st.sampled_from(modes))
    axes = drawn_axes(draw, x.ndim) if opset >= 18 and draw(st.booleans()) else None
    padded = range(x.ndim) if axes is None else axes
    pads = [amount(draw, x.shape[axis], mode) for _ in range(2) for axis in padded]
    attributes: dict[str, Any] = {"mode": mode} if mode != "constant" or draw(st.booleans()) else {}
    if opset < 11:
        attributes |= {"pads": pads} | chosen(draw, {"value": [1.5, -2.0]})
        return Case(op, opset, (x,), attributes, **placed(draw, [x]))
    value = drawn_array(draw, x.dtype, ()) if draw(st.booleans()) else None
    inputs = [x, np.array(pads, np.int64), value]
    if axes is not None:
        inputs.append(np.array(axes, np.int64))
    return Case(op, opset, tuple(inputs), attributes, **placed(draw, inputs))


def amount(draw: Draw, size: int, mode: str) -> int:
    """How much to pad with; a reflection may reach no further than there are elements."""
    if one_in(draw, 8) and size > 1:
        return -1
    return draw(st.integers(0, max(size - 2, 0) if mode == "reflect" else min(size, 3)))


def transpose(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset)
    perm = list(draw(st.permutations(range(x.ndim))))
    if perm and one_in(draw, 16):
        perm[0] = perm[-1]
    given = {"perm": perm} if perm and draw(st.booleans()) else {}
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def blocks(draw: Draw, op: str, opset: int) -> Case:
    side = draw(st.integers(1, 3))
    n, c, h, w = (draw(st.integers(1, 3)) for _ in range(4))
    sizes = (n, c * side**2, h, w) if op == "DepthToSpace" else (n, c, h * side, w * side)
    if one_in(draw, 12):
        sizes = (n, c + 1, h + 1, w)
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], sizes)
    modes = {"mode": ["DCR", "CRD"]} if op == "DepthToSpace" and opset >= 11 else {}
    given = {"blocksize": side, **chosen(draw, modes)}
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def trilu(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_input(draw, op, opset, least=2)
    diagonal = np.array(draw(st.integers(-6, 6)), np.int64) if draw(st.booleans()) else None
    inputs: Sequence[np.ndarray | None] = (x, diagonal)
    given = chosen(draw, {"upper": [0, 1]})
    return Case(op, opset, tuple(inputs), given, **placed(draw, inputs))


CASES = {
    "Shape": shape,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Concat": concat,
    "Split": split,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "Transpose": transpose,
    "DepthToSpace": blocks,
    "SpaceToDepth": blocks,
    "Trilu": trilu,
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_shapes(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
