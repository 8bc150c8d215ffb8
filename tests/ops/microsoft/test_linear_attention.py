from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng([0, *shape]).standard_normal(shape).astype(np.float32)


TOKENS = [drawn(2, 5, 8), drawn(2, 5, 8), drawn(2, 5, 12)]
DECAY, BETA = -np.abs(drawn(2, 5, 2)), np.abs(drawn(2, 5, 2)) * np.float32(0.3)
HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
LINEAR: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "gated delta": ([*TOKENS, None, DECAY, BETA], HEADS),
    "past": ([*TOKENS, drawn(2, 2, 4, 6), DECAY, BETA], {**HEADS, "scale": 0.5}),
    "linear": (TOKENS, {**HEADS, "update_rule": "linear"}),
    "shared keys": (
        [drawn(2, 5, 16), *TOKENS[1:], None, DECAY],
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "gated"},
    ),
    "shared queries": (
        [TOKENS[0], drawn(2, 5, 16), drawn(2, 5, 24), None, -np.abs(drawn(2, 5, 4)), BETA[..., :1]],
        {"q_num_heads": 2, "kv_num_heads": 4},
    ),
}


@pytest.mark.parametrize(("inputs", "attributes"), LINEAR.values(), ids=LINEAR)
def test_linear_attention(xp: Backend, inputs: list[Any], attributes: dict[str, Any]) -> None:
    name = "LinearAttention"
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, outputs=2, **attributes)
    for a, b in zip(run(xp, OPS[DOMAIN, name], *inputs, **attributes), expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_states_of_the_last_tokens(xp: Backend, length: int) -> None:
    op, window = OPS[DOMAIN, "LinearAttention"], 3
    past = drawn(window, 2, 2, 4, 6)
    tokens = [x[:, :length] for x in TOKENS]
    gates = [x[:, :length] for x in (DECAY, BETA)]
    y, states = run(xp, op, *tokens, past, *gates, state_window=window, **HEADS)
    whole, _ = run(xp, op, *tokens, past[-1], *gates, **HEADS)
    np.testing.assert_allclose(y, whole, rtol=1e-4, atol=1e-5)
    for slot in range(window):
        end = length - window + 1 + slot
        expected = np.zeros_like(past[0])
        if end > 0:
            prefix = [x[:, :end] for x in (*tokens, *gates)]
            _, expected = run(xp, op, *prefix[:3], past[-1], *prefix[3:], **HEADS)
        np.testing.assert_allclose(states[slot], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([*TOKENS, drawn(2, 2, 4, 6)], {"state_window": 3}, "with 3 states"),
        (TOKENS, {"kv_num_heads": 3}, "no 2 heads for 3"),
    ],
)
def test_wrong_shapes(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, "LinearAttention"], *inputs, **{**HEADS, **attributes})
