"""Fourier transforms and what goes with them, against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import number_of
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    FLOAT32,
    chosen,
    drawn_array,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

EIGHTHS = np.arange(-8, 9) / 8


def window(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    size = np.array(draw(st.integers(1, 40)), types["T1"])
    given = chosen(draw, {"periodic": [0, 1]})
    # As integers they are 0, and 1 or not where a sum may be 1 or just less.
    to = types["T2"] if isdtype(types["T2"], "real floating") else FLOAT32
    if to != FLOAT32 or draw(st.booleans()):
        given["output_datatype"] = number_of(to)
    return Case(op, opset, (size,), given, scale=1, **placed(draw, [size]))


def mel_weights(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    counts = (draw(st.integers(1, 10)), draw(st.sampled_from([16, 30, 64])), 8192)
    edges = (draw(st.sampled_from([0, 100, 300])), draw(st.sampled_from([2000, 4096])))
    inputs = (
        *(np.array(count, types["T1"]) for count in counts),
        *(np.array(edge, types["T2"]) for edge in edges),
    )
    given = {}
    if types["T3"] != FLOAT32 or draw(st.booleans()):
        given["output_datatype"] = number_of(types["T3"])
    return Case(op, opset, inputs, given, ulps=64, scale=1, **placed(draw, inputs))


def fourier(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    lead = drawn_shape(draw, least=2, most=4, empty=False)
    given = chosen(draw, {"inverse": [0, 1], "onesided": [0, 1]})
    parts = 2 if given.get("inverse") or (not given.get("onesided") and draw(st.booleans())) else 1
    x = drawn_array(draw, types["T1"], (*lead, parts), EIGHTHS)
    axis = draw(st.integers(-len(lead) - 1, len(lead) - 1))
    axis = 1 if axis == -1 else axis
    length = np.array(draw(st.integers(1, 7)), types["T2"]) if draw(st.booleans()) else None
    inputs = (x, length)
    if opset < 20:
        given |= {"axis": axis} if axis != 1 or draw(st.booleans()) else {}
    elif axis != -2 or draw(st.booleans()):
        inputs = (*inputs, np.array(axis, np.int64))
    return Case(op, opset, inputs, given, ulps=16, scale=8, **placed(draw, inputs))


def short_time(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    frame, count, step = (draw(st.integers(1, n)) for n in (8, 5, 6))
    samples = frame + (count - 1) * step + draw(st.integers(0, step - 1))
    given = chosen(draw, {"onesided": [0, 1]})
    # What is complex has two sides.
    parts = 2 if given.get("onesided") == 0 and one_in(draw, 2) else 1
    x = drawn_array(draw, types["T1"], (draw(st.integers(1, 2)), samples, parts), EIGHTHS)
    kind = types["T2"]
    shape = drawn_array(draw, types["T1"], (frame,), EIGHTHS) if draw(st.booleans()) else None
    length = np.array(frame, kind) if shape is None or draw(st.booleans()) else None
    inputs = (x, np.array(step, kind), shape, length)
    return Case(op, opset, inputs, given, ulps=16, scale=8, **placed(draw, inputs))


CASES = {
    **dict.fromkeys(["HannWindow", "HammingWindow", "BlackmanWindow"], window),
    "MelWeightMatrix": mel_weights,
    "DFT": fourier,
    "STFT": short_time,
}


@versions_of(CASES)
def test_signal(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
