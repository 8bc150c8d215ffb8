"""Loops and scans, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import FLOAT32, INT64, drawn_array, drawn_shape, one_in, placed

FLOAT, TRUTH, COUNT = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
# What a Loop counts by is a scalar; all else may have any shape.
SHAPES = {TRUTH: (), COUNT: ()}
EIGHTHS = np.arange(-8, 9) / 8


def body_of(
    nodes: Sequence[onnx.NodeProto], takes: dict[str, int], gives: dict[str, int], **weights: Any
) -> onnx.GraphProto:
    """A subgraph of nodes, from and to values of the types that are named."""
    ends = [
        [helper.make_tensor_value_info(name, kind, SHAPES.get(kind)) for name, kind in side.items()]
        for side in (takes, gives)
    ]
    held = [numpy_helper.from_array(np.asarray(v, np.float32), name) for name, v in weights.items()]
    return helper.make_graph(nodes, "body", *ends, held)


STEPS = st.sampled_from(["Add", "Sub", "Max", "Min"])


def loop(draw: Draw, op: str, opset: int) -> Case:
    """Two states, the second of which is what the first was; what they were comes out stacked."""
    opset = max(opset, 10)  # The first version was still in force there, and its body is the same.
    shape = drawn_shape(draw, most=2, empty=False)
    states = [drawn_array(draw, FLOAT32, shape, EIGHTHS) for _ in range(2)]
    count = np.array(draw(st.integers(0, 5)), np.int64)
    bound = draw(st.sampled_from([1.0, 2.5, 100.0]))
    step = draw(STEPS)
    nodes = [
        helper.make_node("Cast", ["i"], ["step"], to=FLOAT),
        helper.make_node(step, ["a", "b"], ["mixed"]),
        helper.make_node("Add", ["mixed", "step"], ["a_out"]),
        helper.make_node("Identity", ["a"], ["b_out"]),
        helper.make_node("ReduceSum", ["a_out"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "bound"], ["go_on"]),
    ]
    stays = draw(st.booleans())
    scans = draw(st.integers(0, 2))
    nodes += [helper.make_node("Neg", [f"{s}_out"], [f"{s}_scan"]) for s in "ab"[:scans]]
    body = body_of(
        nodes,
        {"i": COUNT, "go": TRUTH, "a": FLOAT, "b": FLOAT},
        {
            "go" if stays else "go_on": TRUTH,
            "a_out": FLOAT,
            "b_out": FLOAT,
            **{f"{s}_scan": FLOAT for s in "ab"[:scans]},
        },
        bound=bound,
    )
    go = np.array(draw(st.booleans()))
    without = draw(st.booleans()) if stays else one_in(draw, 8)
    inputs: list[np.ndarray | None] = [count, None if without else go, *states]
    if step == "Max" and not stays and inputs[1] is not None:
        inputs[0] = None  # It grows, and so comes to an end.
    return Case(op, opset, tuple(inputs), {"body": body}, outputs=2 + scans, **placed(draw, inputs))


KINDS = ("Neg", "Abs")


def scan(draw: Draw, op: str, opset: int) -> Case:
    """A state, and one or two sequences, each along an axis and in a direction of its own."""
    shape = drawn_shape(draw, most=2, empty=False)
    length, count = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    lead = (draw(st.integers(1, 2)),) if opset < 9 else ()
    state = drawn_array(draw, FLOAT32, (*lead, *shape), EIGHTHS)
    axes = [draw(st.integers(0, len(shape))) if opset >= 9 else 0 for _ in range(count)]
    sequences = [
        drawn_array(draw, FLOAT32, (*lead, *shape[:axis], length, *shape[axis:]), EIGHTHS)
        for axis in axes
    ]
    names = [f"x{i}_in" for i in range(count)]
    scans = draw(st.integers(0, 2))
    nodes = [
        helper.make_node(draw(STEPS), ["s", names[0]], ["mixed"]),
        helper.make_node(draw(STEPS), ["mixed", names[-1]], ["s_out"]),
        *(helper.make_node(kind, ["s_out"], [f"scan{i}"]) for i, kind in enumerate(KINDS[:scans])),
    ]
    body = body_of(
        nodes,
        {"s": FLOAT, **dict.fromkeys(names, FLOAT)},
        {"s_out": FLOAT, **{f"scan{i}": FLOAT for i in range(scans)}},
    )
    given: dict[str, Any] = {"body": body, "num_scan_inputs": count}
    ways = st.integers(0, 1)
    if draw(st.booleans()):
        name = "directions" if opset < 9 else "scan_input_directions"
        given[name] = [draw(ways) for _ in range(count)]
    if opset >= 9:
        back = opset >= 11 and draw(st.booleans())
        given["scan_input_axes"] = [axis - (len(shape) + 1) * back for axis in axes]
        if scans and draw(st.booleans()):
            given["scan_output_directions"] = [draw(ways) for _ in range(scans)]
            given["scan_output_axes"] = [draw(st.integers(0, len(shape))) for _ in range(scans)]
    lengths = None
    if opset < 9 and draw(st.booleans()):
        lengths = drawn_array(draw, INT64, lead, range(1, length + 1))
    inputs = (*([lengths] if opset < 9 else []), state, *sequences)
    return Case(op, opset, inputs, given, outputs=1 + scans, **placed(draw, inputs))


CASES = {"Loop": loop, "Scan": scan}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_control(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
