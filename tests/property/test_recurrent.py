"""Recurrent networks and the turning of sequences, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    INT64,
    chosen,
    drawn_array,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# How many functions each direction has.
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
# All but ThresholdedRelu, whose step makes much of a rounding error. Where nothing is said of the
# numbers of Affine and ScaledTanh, the standard has none.
PLAIN = ["Tanh", "Sigmoid", "Relu", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid"]
OF_BOTH = ["Affine", "HardSigmoid", "ScaledTanh"]
EIGHTHS = np.arange(-8, 9) / 8


def recurrent(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    length, batch, size, hidden = (draw(st.integers(1, n)) for n in (5, 3, 3, 4))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    rows = GATES[op] * hidden

    def array(*shape: int, optional: bool = True) -> np.ndarray | None:
        left_out = optional and draw(st.booleans())
        return None if left_out else drawn_array(draw, dtype, shape, EIGHTHS)

    lengths = drawn_array(draw, np.dtype(np.int32), (batch,), range(1, length + 1))
    inputs = [
        array(length, batch, size, optional=False),
        array(directions, rows, size, optional=False),
        array(directions, rows, hidden + one_in(draw, 24), optional=False),
        array(directions, 2 * rows),
        lengths if draw(st.booleans()) else None,
        array(directions, batch, hidden),
    ]
    if op == "LSTM":
        inputs += [array(directions, batch, hidden), array(directions, 3 * hidden)]
    given: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    given |= chosen(draw, OWN[op] | {"clip": [0.5, 0.25, 5.0]})
    if one_in(draw, 2):
        given |= drawn_functions(draw, FUNCTIONS[op] * directions)
    outputs = draw(st.integers(1, 3 if op == "LSTM" else 2))
    layout = placed(draw, inputs)
    return Case(op, opset, tuple(inputs), given, outputs=outputs, ulps=64, scale=4, **layout)


OWN: dict[str, dict[str, list[Any]]] = {
    "RNN": {},
    "GRU": {"linear_before_reset": [0, 1]},
    "LSTM": {"input_forget": [0, 1]},
}


def drawn_functions(draw: Draw, count: int) -> dict[str, Any]:
    """Either all with their usual numbers, or each with its own."""
    kinds = draw(st.sampled_from([PLAIN, OF_BOTH]))
    functions = [draw(st.sampled_from(kinds)) for _ in range(count)]
    given: dict[str, Any] = {"activations": functions}
    if kinds is OF_BOTH:
        for name in ("activation_alpha", "activation_beta"):
            given[name] = [draw(st.sampled_from([0.25, 0.5, 1.0])) for _ in functions]
    return given


def reverse(draw: Draw, op: str, opset: int) -> Case:
    shape = drawn_shape(draw, least=2, most=4, empty=False)
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], shape)
    time = draw(st.integers(0, 1))
    lengths = drawn_array(draw, INT64, (shape[1 - time],), range(shape[time] + 1))
    given = {"time_axis": time, "batch_axis": 1 - time} if time or draw(st.booleans()) else {}
    return Case(op, opset, (x, lengths), given, **placed(draw, [x, lengths]))


CASES = {**dict.fromkeys(GATES, recurrent), "ReverseSequence": reverse}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_recurrent(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
