"""GroupQueryAttention with a cache of only the latest tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from tests.ops.microsoft.group_query import DOMAIN, HEADS, KV_HEADS, SIZE, drawn, inputs_of, run
from tests.ops.oracle import onnxruntime_run

SLIDING = {"sliding_window_cache": 1, "local_window_size": 4}
ROTATED = {**SLIDING, "do_rotary": 1}


def rows_in_use(tokens: int, capacity: int, window: int) -> int:
    if tokens <= capacity:
        return tokens
    evicted_at_once = capacity - window + 1
    return tokens - evicted_at_once * math.ceil((tokens - capacity) / evicted_at_once)


def compare(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], tolerance: float = 1e-4
) -> None:
    """Compare the result, and the rows of the cache that are in use."""
    expected = onnxruntime_run(
        "GroupQueryAttention", *inputs,
        opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes,
    )  # fmt: skip
    y, *buffers = run(xp, inputs, **attributes)[:3]
    assert y.dtype == expected[0].dtype
    np.testing.assert_allclose(y, expected[0], rtol=tolerance, atol=tolerance)
    for actual, reference in zip(buffers, expected[1:], strict=True):
        assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
        for sample, length in enumerate(inputs[5].reshape(-1)):
            used = rows_in_use(length + 1, actual.shape[2], attributes["local_window_size"])
            a, b = (each[sample, :, :used] for each in (actual, reference))
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
            assert not actual[sample, :, used:].any()


CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "prompt": (inputs_of(9, 6, 9, [8, 8]), ROTATED),
    "prompt that fills no cache": (inputs_of(3, 6, 3, [2, 2]), ROTATED),
    "prompt of one token": (inputs_of(1, 6, 1, [0, 0]), ROTATED),
    "packed prompt": (inputs_of(9, 6, 9, [8, 8], is_packed=True), ROTATED),
    "token": (inputs_of(1, 6, 9, [8, 5]), ROTATED),
    "token after no others": (inputs_of(1, 6, 9, [8, 0]), SLIDING),
    "packed token": (inputs_of(1, 6, 9, [8, 7], is_packed=True), ROTATED),
    "token, no slack": (inputs_of(1, 4, 9, [8, 3]), ROTATED),
    "token, much slack": (inputs_of(1, 12, 31, [30, 13]), ROTATED),
    "tokens": (inputs_of(3, 6, 9, [8]), ROTATED),
    "tokens, no slack": (inputs_of(3, 4, 9, [8]), ROTATED),
    "more tokens than rows": (inputs_of(8, 6, 12, [11]), ROTATED),
    "window of one": (inputs_of(2, 3, 9, [8]), {**ROTATED, "local_window_size": 1}),
    "softcap": (inputs_of(1, 6, 9, [8, 5]), {**SLIDING, "softcap": 0.8, "scale": 0.3}),
    "sink": (inputs_of(1, 6, 9, [8, 5], None, None, drawn(HEADS)), SLIDING),
    "bias": (inputs_of(1, 6, 9, [8, 5], None, drawn(2, 1, 1, 9)), SLIDING),
    "bias of one sample": (inputs_of(1, 6, 9, [8, 5], None, drawn(1, HEADS, 1, 9)), SLIDING),
    "bias, tokens": (inputs_of(3, 6, 9, [8], None, drawn(1, HEADS, 3, 9)), SLIDING),
    "positions": (inputs_of(1, 6, 9, [8, 5], np.asarray([[11], [3]])), ROTATED),
}


@pytest.mark.parametrize(("inputs", "attributes"), CASES.values(), ids=CASES)
def test_the_latest_tokens_stay(xp: Backend, inputs: list[Any], attributes: dict[str, Any]) -> None:
    compare(xp, inputs, attributes)


@pytest.mark.parametrize("case", ["token", "more tokens than rows", "bias"])
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_float16(backend: Backend, case: str) -> None:
    inputs, attributes = CASES[case]
    narrow = [
        x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in inputs
    ]
    compare(backend, narrow, attributes, tolerance=5e-3)


@pytest.mark.parametrize("steps", [[14], [1] * 14, [5, 1, 3, 1, 4], [2, 9, 3]], ids=str)
@pytest.mark.parametrize("capacity", [4, 5, 9])
def test_steps_of_any_length_agree_with_a_full_cache(capacity: int, steps: list[int]) -> None:
    tokens = inputs_of(14, None, 14, [13])
    options: dict[str, Any] = {**ROTATED, "num_heads": HEADS, "kv_num_heads": KV_HEADS}
    full = run(HOST, tokens, do_rotary=1, local_window_size=4)
    cache = [np.zeros((1, KV_HEADS, capacity, SIZE), np.float32)] * 2
    results, end = [], 0
    for step in steps:
        start, end = end, end + step
        new = [x[:, start:end] for x in tokens[:3]]
        counts = [np.asarray([end - 1], np.int32), np.asarray(end, np.int32)]
        y, *cache = run(HOST, [*new, *cache, *counts, *tokens[7:]], **options)[:3]
        results.append(y)
        used = rows_in_use(end, capacity, 4)
        np.testing.assert_allclose(
            cache[0][:, :, :used], full[1][:, :, end - used : end], atol=1e-6
        )
        np.testing.assert_array_equal(cache[1][:, :, :used], full[2][:, :, end - used : end])
    np.testing.assert_allclose(np.concatenate(results, axis=1), full[0], atol=1e-5)


def test_in_a_model(xp: Backend) -> None:
    inputs = inputs_of(1, 6, [9], [8, 5])
    options: dict[str, Any] = {**ROTATED, "num_heads": HEADS, "kv_num_heads": KV_HEADS}
    expected = onnxruntime_run(
        "GroupQueryAttention", *inputs, opset=1, domain=DOMAIN, outputs=3, **options
    )
    y, keys, _ = sardonyx.run_op(
        "GroupQueryAttention", *inputs, domain=DOMAIN, outputs=3, backend=xp, **options
    )
    np.testing.assert_allclose(xp.fetch(y), expected[0], rtol=1e-4, atol=1e-4)
    assert keys.shape == (2, KV_HEADS, 6, SIZE)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        (inputs_of(9, None, 9, [8]), {}, "past_key is missing"),
        (inputs_of(1, 3, 9, [8]), {}, "at least 4 rows"),
        (inputs_of(1, 6, 9, [8]), {"local_window_size": -1}, "local_window_size is -1"),
        (inputs_of(1, 6, 6, [5], keys=0), {}, "new keys"),
        (inputs_of(1, 6, 9, [8]), {"qk_output": 2}, "qk_output"),
        (inputs_of(1, 6, 9, [8, 5], None, drawn(1, 1, 1, 6)), {}, "does not broadcast"),
    ],
)
def test_wrong_inputs(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, inputs, **{**SLIDING, **attributes})


def test_a_prompt_needs_samples_of_one_length() -> None:
    inputs = inputs_of(9, 6, [9], [8, 5])
    with pytest.raises(ValueError, match="seqlens_k"):
        sardonyx.run_op(
            "GroupQueryAttention", *inputs,
            domain=DOMAIN, outputs=3, num_heads=HEADS, kv_num_heads=KV_HEADS, **SLIDING,
        )  # fmt: skip
