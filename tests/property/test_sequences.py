"""Operators on sequences and optionals, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from sardonyx.graph.standard.types import number_of
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.reference import choices_of_types
from tests.property.strategies import (
    INT64,
    chosen,
    drawn_array,
    drawn_shape,
    one_in,
)

PLAIN = [np.dtype(name) for name in ("float32", "float64", "int64", "int32", "bool", "uint8")]

# -- sequences ------------------------------------------------------------------------------------


def drawn_sequence(draw: Draw, least: int = 1) -> list[np.ndarray]:
    """Tensors of one type, each of its own shape."""
    dtype = draw(st.sampled_from([*PLAIN, np.dtype(object)]))
    count = draw(st.integers(least, 4))
    return [drawn_array(draw, dtype, drawn_shape(draw, most=3)) for _ in range(count)]


def drawn_position(draw: Draw, count: int) -> np.ndarray:
    kind = draw(st.sampled_from([np.int32, np.int64]))
    beyond = one_in(draw, 12)
    return np.array(draw(st.integers(-count - beyond, count - 1 + beyond)), kind)


def of_sequence(draw: Draw, op: str, opset: int) -> Case:
    return Case(op, opset, (drawn_sequence(draw),), on_jax=one_in(draw, 8))


def at(draw: Draw, op: str, opset: int) -> Case:
    items = drawn_sequence(draw)
    return Case(op, opset, (items, drawn_position(draw, len(items))), on_jax=one_in(draw, 8))


def construct(draw: Draw, op: str, opset: int) -> Case:
    return Case(op, opset, tuple(drawn_sequence(draw)), on_jax=one_in(draw, 8))


def empty(draw: Draw, op: str, opset: int) -> Case:
    return Case(op, opset, (), chosen(draw, {"dtype": list(map(number_of, PLAIN))}))


def erase(draw: Draw, op: str, opset: int) -> Case:
    items = drawn_sequence(draw)
    where = (drawn_position(draw, len(items)),) if draw(st.booleans()) else ()
    return Case(op, opset, (items, *where), on_jax=one_in(draw, 8))


def insert(draw: Draw, op: str, opset: int) -> Case:
    items = drawn_sequence(draw)
    new = drawn_array(draw, items[0].dtype, drawn_shape(draw, most=2))
    where = (drawn_position(draw, len(items) + 1),) if draw(st.booleans()) else ()
    return Case(op, opset, (items, new, *where), on_jax=one_in(draw, 8))


def concat(draw: Draw, op: str, opset: int) -> Case:
    dtype = draw(st.sampled_from(PLAIN))
    stacked = draw(st.booleans())
    shape = list(drawn_shape(draw, least=0 if stacked else 1, most=3))
    rank = len(shape) + stacked
    axis = draw(st.integers(-rank, rank - 1))
    items = []
    for _ in range(draw(st.integers(1, 4))):
        if not stacked:
            shape[axis] = draw(st.integers(0, 3))
        items.append(drawn_array(draw, dtype, tuple(shape)))
    given = {"axis": axis} | ({"new_axis": 1} if stacked else {})
    return Case(op, opset, (items,), given, on_jax=one_in(draw, 8))


def split(draw: Draw, op: str, opset: int) -> Case:
    types = choices_of_types(op, opset)[0]["T"]
    dtype = draw(st.sampled_from([t for t in types if t in PLAIN]))
    x = drawn_array(draw, dtype, drawn_shape(draw, least=1, most=4, empty=False))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    given: dict[str, Any] = {"axis": axis, **chosen(draw, {"keepdims": [0, 1]})}
    size = x.shape[axis]
    sizes: Any = None
    if one_in(draw, 3):
        sizes = np.array(draw(st.integers(1, size + 1)), INT64)
    elif draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
        sizes = np.diff([0, *cuts, size]) + one_in(draw, 12)
    inputs = (x,) if sizes is None else (x, sizes)
    return Case(op, opset, inputs, given, on_jax=one_in(draw, 8))


def mapped(draw: Draw, op: str, opset: int) -> Case:
    """Each of a sequence by itself, and with what is the same for all."""
    items = [drawn_array(draw, np.dtype(np.float32), drawn_shape(draw, most=2, empty=False))]
    items += [drawn_array(draw, items[0].dtype, (draw(st.integers(1, 3)),)) for _ in range(2)]
    other = drawn_array(draw, items[0].dtype, ())
    operation = draw(st.sampled_from(["Add", "Mul", "Sub"]))
    typed = helper.make_tensor_value_info
    ends = [typed(name, onnx.TensorProto.FLOAT, None) for name in ("x", "o", "y")]
    node = helper.make_node(operation, ["x", "o"], ["y"])
    body = helper.make_graph([node], "body", ends[:2], ends[2:])
    return Case(op, opset, (items, other), {"body": body}, on_jax=one_in(draw, 8))


# -- optionals ------------------------------------------------------------------------------------


def drawn_content(draw: Draw) -> Any:
    if draw(st.booleans()):
        return [x.astype(np.float32) for x in drawn_sequence(draw) if x.dtype != "O"] or [FLOAT]
    return drawn_array(draw, draw(st.sampled_from(PLAIN)), drawn_shape(draw))


FLOAT = np.ones(2, np.float32)


def optional(draw: Draw, op: str, opset: int) -> Case:
    if draw(st.booleans()):
        return Case(op, opset, (drawn_content(draw),))
    element = number_of(draw(st.sampled_from(PLAIN)))
    kind = helper.make_tensor_type_proto(element, None)
    kind = helper.make_sequence_type_proto(kind) if draw(st.booleans()) else kind
    return Case(op, opset, (), {"type": kind})


def element(draw: Draw, op: str, opset: int) -> Case:
    # From opset 18 on what is no optional may stand for one that has an element.
    wrapped = opset < 18 or draw(st.booleans())
    return Case(op, opset, (drawn_content(draw),), optional=wrapped)


CASES = {
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceAt": at,
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceLength": of_sequence,
    "ConcatFromSequence": concat,
    "SplitToSequence": split,
    "SequenceMap": mapped,
    "Optional": optional,
    **dict.fromkeys(["OptionalHasElement", "OptionalGetElement"], element),
}


@versions_of(CASES)
def test_sequences(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
