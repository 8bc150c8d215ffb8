"""Operators that read elements by their indices, against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    Shape,
    drawn_array,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
FARTHEST = [2**63 - 1, -(2**63), 2**31 - 1, -100, 100]


def indices(draw: Draw, size: int, shape: Shape, dtype: DType, negative: bool = True) -> np.ndarray:
    """Indices into an axis, from either end; none into one that is empty."""
    return drawn_array(draw, dtype, shape if size else (0,), range(-size if negative else 0, size))


def gather(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw, least=1, most=4))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    shape = drawn_shape(draw, most=2)
    places = indices(draw, x.shape[axis], shape, types["Tind"], negative=opset >= 11)
    given = {"axis": axis} if axis or draw(st.booleans()) else {}
    return Case(op, opset, (x, places), given, **placed(draw, [x, places]))


def gather_elements(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw, least=1, most=4, empty=False))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    shape = [draw(st.integers(0 if one_in(draw, 8) else 1, size)) for size in x.shape]
    shape[axis] = draw(st.integers(1, 6))
    places = indices(draw, x.shape[axis], tuple(shape), types["Tind"])
    given = {"axis": axis} if axis or draw(st.booleans()) else {}
    return Case(op, opset, (x, places), given, **placed(draw, [x, places]))


def gather_nd(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(
        draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1, most=4, empty=False)
    )
    batch = draw(st.integers(0, x.ndim - 1)) if opset >= 12 else 0
    count = draw(st.integers(1, x.ndim - batch))
    lead = (*x.shape[:batch], *drawn_shape(draw, most=2, empty=False))
    columns = [indices(draw, x.shape[batch + i], lead, INT64) for i in range(count)]
    inputs = (x, np.stack(columns, axis=-1))
    given = {"batch_dims": batch} if batch or (opset >= 12 and draw(st.booleans())) else {}
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def slices(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1, most=4))
    axes = draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1))
    ends = st.one_of(st.integers(-6, 6), st.sampled_from(FARTHEST))
    starts, stops = ([draw(ends) for _ in axes] for _ in range(2))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2, 3, 2**63 - 1])) for _ in axes]
    named = axes if sorted(axes) != axes or axes != list(range(len(axes))) else None
    if named is not None and opset >= 10 and draw(st.booleans()):
        named = [axis - x.ndim for axis in named]
    if opset < 10:
        given = {"starts": starts, "ends": stops} | ({} if named is None else {"axes": named})
        return Case(op, opset, (x,), given, **placed(draw, [x]))
    kind = INT64
    if draw(st.booleans()) and max(map(abs, starts + stops + steps)) < 2**31:
        kind = INT32
    lists = [starts, stops, named, steps if draw(st.booleans()) else None]
    inputs = (x, *(None if one is None else np.array(one, kind) for one in lists))
    return Case(op, opset, inputs, **placed(draw, inputs))


CASES = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Slice": slices,
}


@versions_of(CASES)
def test_indexing(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
