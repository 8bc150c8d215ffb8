"""Only CUDA has the operator in onnxruntime: it is compared with its definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results
from tests.support.types_present import needs

BOUNDS = np.asarray([0, 4, 5, 11], np.int32)
CHANNELS, OP = 3, "VarlenCausalConvWithState"


def inputs(taps: int, dilation: int, dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [
        (11, CHANNELS),
        (CHANNELS, 1, taps),
        (CHANNELS,),
        (3, CHANNELS, (taps - 1) * dilation),
    ]
    x, weight, bias, state = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    return [x, weight, BOUNDS, bias, state]


def convolved(arrays: list[Any], dilation: int, activation: str) -> tuple[Any, Any]:
    x, weight, bounds, bias, state = (a if a is None else a.astype(np.float64) for a in arrays)
    results, states = [], []
    for i in range(3):
        own = x[int(bounds[i]) : int(bounds[i + 1])]
        whole = np.concatenate([state[i].T, own])
        taps = range(weight.shape[2])
        parts = [whole[j * dilation :][: len(own)] * weight[:, 0, j] for j in taps]
        results.append(np.sum(parts, axis=0) + (0 if bias is None else bias))
        states.append(whole[len(own) :].T)
    y = np.concatenate(results)
    return y if activation == "none" else y / (1 + np.exp(-y)), np.stack(states)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (3, 1), (4, 2), (2, 9)])
@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
def test_convolution(xp: Backend, dtype: Any, taps: int, dilation: int, activation: str) -> None:
    needs(xp, dtype)
    arrays = inputs(taps, dilation, dtype)
    options = {"dilation": dilation, "activation": activation}
    y, state = results(xp, OP, *arrays, outputs=2, **options)
    expected_y, expected_state = convolved(arrays, dilation, activation)
    assert y.dtype == state.dtype == dtype
    bound = 8 * float(np.finfo(dtype).eps) * float(np.max(np.abs(expected_y)))
    np.testing.assert_allclose(y, expected_y, rtol=0, atol=bound)
    np.testing.assert_array_equal(state, expected_state)


def test_first_tokens_are_captured(xp: Backend) -> None:
    captured = np.asarray([2, 5, 9], np.int32)
    arrays = [*inputs(3, 1), captured]
    *_, updates = results(xp, OP, *arrays, outputs=3, state_update_capacity=4)
    expected = np.zeros((3, 4, CHANNELS), np.float32)
    for i, count in enumerate([2, 1, 4]):
        expected[i, :count] = arrays[0][BOUNDS[i] :][:count]
    np.testing.assert_array_equal(updates, expected)


@pytest.mark.parametrize(
    ("place", "value", "options", "message"),
    [
        (0, np.zeros(11, np.float32), {}, "input has shape"),
        (1, np.zeros((2, 1, 3), np.float32), {}, "weight has shape"),
        (4, np.zeros((3, CHANNELS, 3), np.float32), {}, "initial_state has shape"),
        (2, np.asarray([0, 4, 5, 12], np.int32), {}, "holds 12"),
        (3, None, {"state_update_capacity": 1}, "state_update_capacity is 1"),
        (3, None, {"dilation": 0}, "dilation is 0"),
    ],
)
def test_the_inputs_are_checked(place: int, value: Any, options: Any, message: str) -> None:
    arrays = inputs(3, 1)
    arrays[place] = value
    with pytest.raises(InvalidInput, match=message):
        results(HOST, OP, *arrays, outputs=3, **options)
