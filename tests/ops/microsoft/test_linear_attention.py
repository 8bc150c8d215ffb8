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


def compare(xp: Backend, name: str, inputs: list[Any], outputs: int = 2, **attributes: Any) -> None:
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, outputs=outputs, **attributes)
    found = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    for a, b in zip(found, expected if outputs > 1 else [expected], strict=False):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


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
    compare(xp, "LinearAttention", inputs, **attributes)


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
    "attributes", [{}, {"dilation": 2}, {"activation": "silu", "dilation": 3}], ids=str
)
@pytest.mark.parametrize("has_past", [True, False])
@pytest.mark.parametrize("length", [6, 1])
def test_causal_convolution(
    xp: Backend, attributes: dict[str, Any], has_past: bool, length: int
) -> None:
    weight, bias = drawn(3, 1, 4), drawn(3)
    past = drawn(2, 3, 3 * attributes.get("dilation", 1)) if has_past else None
    x = drawn(2, 3, length)
    compare(xp, "CausalConvWithState", [x, weight, bias, past], **attributes)
    last = [x.swapaxes(1, 2), weight, bias, None if past is None else past.swapaxes(1, 2)]
    compare(xp, "CausalConvWithState", last, channels_last=1, **attributes)


def test_several_axes_of_channels(xp: Backend) -> None:
    inputs = [drawn(2, 6, 3, 2), drawn(6, 1, 4), drawn(6), drawn(2, 3, 3, 2)]
    compare(xp, "CausalConvWithState", inputs, channels_last=1)


def test_states_of_the_last_positions(xp: Backend) -> None:
    op, window = OPS[DOMAIN, "CausalConvWithState"], 3
    x, weight, past = drawn(2, 3, 2), drawn(3, 1, 4), drawn(window, 2, 3, 3)
    y, states = run(xp, op, x, weight, None, past, state_window=window)
    np.testing.assert_array_equal(states[0], 0)
    for end in (1, 2):
        expected, state = run(xp, op, x[:, :, :end], weight, None, past[-1])
        np.testing.assert_allclose(y[:, :, :end], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(states[end], state)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        ("LinearAttention", [*TOKENS, drawn(2, 2, 4, 6)], {"state_window": 3}, "with 3 states"),
        ("LinearAttention", TOKENS, {"kv_num_heads": 3}, "no 2 heads for 3"),
        ("CausalConvWithState", [drawn(2, 3, 5, 6), drawn(3, 1, 2, 4)], {"ndim": 2}, "ndim is 2"),
    ],
)
def test_wrong_shapes(
    xp: Backend, name: str, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    options = {**HEADS, **attributes} if name == "LinearAttention" else attributes
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, name], *inputs, **options)
