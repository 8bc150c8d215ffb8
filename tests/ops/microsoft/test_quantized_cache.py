"""GroupQueryAttention with a cache of few bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from tests.ops.microsoft.group_query import DOMAIN, HEADS, KV_HEADS, SIZE, drawn, inputs_of, run
from tests.ops.oracle import onnxruntime_run

TENSOR = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
CHANNEL = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
FLOAT8 = ml_dtypes.float8_e4m3fn


def of_bytes(inputs: list[Any], *scales: Any, bits: int = 8) -> list[Any]:
    """The inputs with a cache of random integers, and with scales for values from -2 to 2."""
    rng = np.random.default_rng(0)
    batch, heads, length, size = inputs[3].shape
    shape = (batch, heads, length, size * bits // 8)
    low, high, dtype = (-128, 128, np.int8) if bits == 8 else (0, 256, np.uint8)
    cache = [rng.integers(low, high, shape).astype(dtype) for _ in range(2)]
    missing = [None] * (12 - len(inputs))
    return [*inputs[:3], *cache, *inputs[5:], *missing, *scales]


def per_tensor(bits: int = 8) -> list[np.ndarray]:
    return [np.asarray([scale * 2.0 ** (2 - bits)], np.float32) for scale in (1.1, 0.9)]


def per_channel(*shape: int) -> list[np.ndarray]:
    return [(0.01 + 0.01 * np.abs(drawn(KV_HEADS * SIZE, seed=i))).reshape(shape) for i in (0, 1)]


ROTATED = {**TENSOR, "do_rotary": 1}
FOUR = {**TENSOR, "kv_cache_bit_width": 4}
SLIDING = {**TENSOR, "sliding_window_cache": 1, "local_window_size": 4}
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "prompt": (of_bytes(inputs_of(5, 0, 5, [4, 4]), *per_tensor()), ROTATED),
    "prompt, buffer": (of_bytes(inputs_of(5, 9, 5, [4, 4]), *per_tensor()), ROTATED),
    "token": (of_bytes(inputs_of(1, 6, 7, [6, 6]), *per_tensor()), ROTATED),
    "token, buffer": (of_bytes(inputs_of(1, 12, 7, [6, 3]), *per_tensor()), ROTATED),
    "tokens": (of_bytes(inputs_of(3, 6, 9, [8]), *per_tensor()), ROTATED),
    "packed tokens": (of_bytes(inputs_of(3, 6, 9, [8], is_packed=True), *per_tensor()), ROTATED),
    "channels": (
        of_bytes(inputs_of(1, 12, 7, [6, 3]), *per_channel(1, KV_HEADS, 1, SIZE)),
        CHANNEL,
    ),
    "flat channels": (of_bytes(inputs_of(1, 12, 7, [6, 3]), *per_channel(-1)), CHANNEL),
    "4 bits": (of_bytes(inputs_of(1, 12, 7, [6, 3]), *per_tensor(4), bits=4), FOUR),
    "4 bits, prompt": (of_bytes(inputs_of(5, 0, 5, [4, 4]), *per_tensor(4), bits=4), FOUR),
    "4 bits, channels": (
        of_bytes(inputs_of(3, 6, 9, [8]), *(8 * x for x in per_channel(-1)), bits=4),
        {**CHANNEL, "kv_cache_bit_width": 4},
    ),
    "values beyond the range": (
        of_bytes(inputs_of(1, 6, 7, [6, 6]), *(x / 4 for x in per_tensor())),
        TENSOR,
    ),
    "no new keys": (of_bytes(inputs_of(1, 7, 7, [6], keys=0), *per_tensor()), TENSOR),
    "sliding, token": (of_bytes(inputs_of(1, 6, 9, [8, 5]), *per_tensor()), SLIDING),
    "sliding, prompt": (of_bytes(inputs_of(9, 6, 9, [8, 8]), *per_tensor()), SLIDING),
    "sink, window, softcap": (
        of_bytes(inputs_of(1, 9, 7, [6, 2], None, None, drawn(HEADS)), *per_tensor()),
        {**TENSOR, "local_window_size": 2, "softcap": 1.5},
    ),
    "bias": (
        of_bytes(inputs_of(1, 9, 7, [6, 2], None, drawn(1, HEADS, 1, 7)), *per_tensor()),
        TENSOR,
    ),
}


@pytest.mark.parametrize(("inputs", "attributes"), CASES.values(), ids=CASES)
def test_as_onnxruntime(xp: Backend, inputs: list[Any], attributes: dict[str, Any]) -> None:
    compare(xp, inputs, attributes, np.float32)


@pytest.mark.parametrize("case", ["token", "4 bits", "sliding, prompt"])
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_float16(backend: Backend, case: str) -> None:
    compare(backend, *CASES[case], np.float16)


def compare(xp: Backend, inputs: list[Any], attributes: dict[str, Any], dtype: Any) -> None:
    floats = [
        x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in inputs[:12]
    ]
    inputs = [*floats, *inputs[12:]]
    expected = onnxruntime_run(
        "GroupQueryAttention", *inputs,
        opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes,
    )  # fmt: skip
    y, *caches = run(xp, inputs, **attributes)[:3]
    tolerance = 2e-4 if dtype == np.float32 else 1e-2
    np.testing.assert_allclose(y, expected[0], rtol=tolerance, atol=tolerance)
    for actual, reference in zip(caches, expected[1:], strict=True):
        assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
        for sample, length in enumerate(inputs[5]):
            used = length + 1
            if "sliding_window_cache" in attributes:
                used = used if used <= 6 else 6 - (6 - used) % 3
            a, b = (each[sample, :, :used] for each in (actual, reference))
            # Angles rounded otherwise may move a value of float16 past a tie.
            assert np.mean(a != b) <= (0 if dtype == np.float32 else 0.02)


@pytest.mark.parametrize("xp", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_floats_of_8_bits(xp: Backend) -> None:
    """As with a cache of floats, had its values and the new ones been rounded before."""
    inputs = inputs_of(3, 12, 7, [6])
    scales = [np.asarray([scale], np.float32) for scale in (0.01, 0.5)]
    past = [(x / scale).astype(FLOAT8) for x, scale in zip(inputs[3:5], scales, strict=True)]
    stored = [
        np.clip(x / scale, -448, 448).astype(FLOAT8)
        for x, scale in zip(inputs[1:3], scales, strict=True)
    ]
    new, rounded = (
        [x.astype(np.float32) * scale for x, scale in zip(each, scales, strict=True)]
        for each in (stored, past)
    )
    missing = [None] * 3
    expected = run(xp, [inputs[0], *new, *rounded, *inputs[5:]])
    y, *caches = run(xp, [*inputs[:3], *past, *inputs[5:], *missing, *scales], **TENSOR)[:3]
    np.testing.assert_allclose(y, expected[0], rtol=1e-5, atol=1e-5)
    for actual, values, scale in zip(caches, expected[1:3], scales, strict=True):
        assert actual.dtype == FLOAT8
        np.testing.assert_allclose(actual.astype(np.float32) * scale, values, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        (inputs_of(5, None, 5, [4]), TENSOR, "needs the inputs past_key"),
        (of_bytes(inputs_of(1, 6, 7, [6])), TENSOR, "k_scale"),
        (of_bytes(inputs_of(1, 6, 7, [6]), *per_tensor()), FOUR, "kv_cache_bit_width is 4"),
        (of_bytes(inputs_of(1, 6, 7, [6]), *per_tensor()), CHANNEL, "must have 32 numbers"),
        (of_bytes(inputs_of(1, 6, 7, [6]), *per_tensor()), {}, "k_quant_type is NONE"),
        (of_bytes(inputs_of(1, 6, 7, [6]), *per_channel(-1)), TENSOR, "must have 1 numbers"),
        (of_bytes(inputs_of(1, 6, 7, [6])), {"k_quant_type": "PER_TOKEN"}, "k_quant_type"),
    ],
)
def test_wrong_formats(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, inputs, **attributes)
