from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops.microsoft.causal_convolution import CausalConvWithState
from tests.ops.oracle import onnxruntime_run, run


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("attributes", [{}, {"activation": "silu"}, {"dilation": 3}], ids=str)
@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_CausalConvWithState(
    xp: Backend, length: int, attributes: dict[str, Any], has_more: bool, channels_last: bool
) -> None:
    reach = 3 * attributes.get("dilation", 1)
    x, past = drawn(2, 6, length), drawn(2, 6, reach, seed=1)
    if channels_last:
        x, past = drawn(2, length, 3, 2), drawn(2, reach, 3, 2, seed=1)
        attributes = attributes | {"channels_last": 1}
    inputs = [x, drawn(6, 1, 4, seed=2), *([drawn(6, seed=3), past] if has_more else [])]
    expected = onnxruntime_run(
        "CausalConvWithState", *inputs, opset=1, domain="com.microsoft", outputs=2, **attributes
    )
    for actual, other in zip(
        run(xp, CausalConvWithState, *inputs, **attributes), expected, strict=True
    ):
        np.testing.assert_allclose(actual, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_window_of_states(xp: Backend, channels_last: bool) -> None:
    """Each slot is the state after one element more; there are none before the first."""
    axis = 1 if channels_last else 2
    x, weight = drawn(2, 3, 4), drawn(4 if channels_last else 3, 1, 3, seed=1)
    length = x.shape[axis]
    shape = tuple(2 if i == axis else n for i, n in enumerate(x.shape))
    past = drawn(length + 2, *shape, seed=2)
    options: dict[str, Any] = {"channels_last": int(channels_last)}
    y, states = run(
        xp, CausalConvWithState, x, weight, None, past, state_window=length + 2, **options
    )
    np.testing.assert_array_equal(states[:2], np.zeros((2, *shape), np.float32))
    for count in range(1, length + 1):
        part = np.take(x, range(count), axis=axis)
        part_y, state = run(xp, CausalConvWithState, part, weight, None, past[-1], **options)
        np.testing.assert_array_equal(states[1 + count], state)
        np.testing.assert_allclose(np.take(y, range(count), axis=axis), part_y, rtol=1e-5)


def test_shapes_and_attributes_that_do_not_fit(xp: Backend) -> None:
    x, weight = drawn(2, 3, 4), drawn(3, 1, 3)
    with pytest.raises(ValueError, match=r"past_state has shape \(2, 3, 3\), but must have"):
        run(xp, CausalConvWithState, x, weight, None, drawn(2, 3, 3))
    with pytest.raises(ValueError, match="one filter per channel"):
        run(xp, CausalConvWithState, x, drawn(4, 1, 3))
    with pytest.raises(ValueError, match="ndim is 2, but must be"):
        run(xp, CausalConvWithState, x, weight, ndim=2)
