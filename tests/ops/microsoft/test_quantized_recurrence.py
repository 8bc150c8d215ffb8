from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import BYTES, DOMAIN, floats, integers
from tests.ops.oracle import onnxruntime_run, run
from tests.support.byte_products import byte_factors

STEPS, FEATURES, HIDDEN = 5, 6, 4


def lstm_inputs(
    dtype: Any, batch: int = 1, directions: int = 1, *, by_gate: bool = False, others: bool = False
) -> list[Any]:
    shape = (directions, 4 * HIDDEN) if by_gate else (directions,)
    zeros = np.full(shape, 0 if dtype == np.int8 else 128, dtype)
    scale = (np.abs(floats(*shape)) / 200 + 0.002).astype(np.float32)
    state = (directions, batch, HIDDEN)
    lengths = np.arange(batch, dtype=np.int32) % 2 + STEPS - 1
    return [
        floats(STEPS, batch, FEATURES),
        byte_factors(integers(dtype, directions, FEATURES, 4 * HIDDEN)),
        byte_factors(integers(dtype, directions, HIDDEN, 4 * HIDDEN)),
        floats(directions, 8 * HIDDEN) if others else None,
        lengths if others else None,
        floats(*state, seed=1) if others else None,
        floats(*state, seed=2) if others else None,
        floats(directions, 3 * HIDDEN) / 10 if others else None,
        *(scale, zeros, scale * np.float32(1.5), zeros),
    ]


def assert_same_states(xp: Backend, inputs: Any, atol: float = 1e-5, **attributes: Any) -> None:
    attributes = {"hidden_size": HIDDEN, **attributes}
    options: Any = {"opset": 1, "domain": DOMAIN, "outputs": 3}
    expected = onnxruntime_run("DynamicQuantizeLSTM", *inputs, **options, **attributes)
    results = run(xp, OPS[DOMAIN, "DynamicQuantizeLSTM"], *inputs, **attributes)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, atol=atol)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("by_gate", [True, False])
@pytest.mark.parametrize("others", [True, False])
def test_one_sequence(xp: Backend, by_gate: bool, others: bool, dtype: Any) -> None:
    inputs = lstm_inputs(dtype, by_gate=by_gate, others=others)
    assert_same_states(xp, inputs)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("batch", [1, 3])
def test_directions_and_batches(xp: Backend, direction: str, batch: int) -> None:
    directions = 2 if direction == "bidirectional" else 1
    inputs = lstm_inputs(np.uint8, batch, directions, by_gate=True, others=True)
    # onnxruntime divides a batch among its threads, of which each quantizes its part.
    assert_same_states(xp, inputs, 1e-5 if batch == 1 else 0.01, direction=direction)


def test_attributes(xp: Backend) -> None:
    activations = ("HardSigmoid", "Tanh", "Softsign")
    inputs = lstm_inputs(np.int8)
    assert_same_states(xp, inputs, activations=activations, clip=0.7, input_forget=1)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, np.zeros((6, 16), np.uint8), "three axes"),
        (8, np.ones((1, 4), np.float32), "W_scale has shape"),
        (1, np.zeros((1, 5, 16), np.uint8), "W has shape"),
    ],
)
def test_refusals(xp: Backend, place: int, value: Any, message: str) -> None:
    inputs = lstm_inputs(np.uint8)
    inputs[place] = value
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, "DynamicQuantizeLSTM"], *inputs)
