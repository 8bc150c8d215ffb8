from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results
from tests.support.types_present import needs

DTYPES = [np.float32, np.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (0, 3, 4)])
def test_linear_attention_gate(xp: Backend, dtype: Any, outputs: int, shape: Any) -> None:
    needs(xp, dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(0, 8, shape).astype(dtype) for _ in range(2))
    bias, scale = (rng.normal(size=4).astype(np.float32) for _ in range(2))
    inputs = [a, bias, scale, *([b] if outputs == 2 else [])]
    assert_agrees(xp, "LinearAttentionGate", *inputs, outputs=outputs, ulps=4)


def test_the_second_gate_needs_its_input() -> None:
    inputs = [np.ones((2, 4), np.float32), *[np.ones(4, np.float32)] * 2]
    with pytest.raises(InvalidInput, match="b is missing"):
        results(HOST, "LinearAttentionGate", *inputs, outputs=2)
    with pytest.raises(InvalidInput, match="dt_bias has shape"):
        results(HOST, "LinearAttentionGate", inputs[0], inputs[1][:2], inputs[2])


def engram(dtype: Any, shape: Any = (2, 3, 4, 8)) -> list[Any]:
    rng = np.random.default_rng(0)
    batch, length, branches, features = shape
    shapes = [shape, shape, (batch, length, features), *[(branches, features)] * 3]
    return [rng.normal(size=each).astype(dtype) for each in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_engram_gate(xp: Backend, dtype: Any, outputs: int, epsilon: float) -> None:
    needs(xp, dtype)
    inputs = engram(dtype)[: 4 + outputs]
    inputs[0][0, 0] = 0
    assert_agrees(xp, "EngramGate", *inputs, outputs=outputs, ulps=8, epsilon=epsilon)


@pytest.mark.parametrize(
    ("count", "change", "message"),
    [
        (5, {}, "conv_norm_scale is missing"),
        (6, {1: np.ones((2, 3, 4, 7), np.float32)}, "key has shape"),
        (6, {2: np.ones((2, 3, 7), np.float32)}, "value has shape"),
        (6, {5: np.ones((4, 7), np.float32)}, "conv_norm_scale has shape"),
    ],
)
def test_engram_gate_checks_its_inputs(count: int, change: Any, message: str) -> None:
    inputs = engram(np.float32)[:count]
    for place, value in change.items():
        inputs[place] = value
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "EngramGate", *inputs, outputs=2)
