"""Packed batches, compared with onnxruntime on the padded ones: it packs on GPUs only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
BATCH, LENGTH, HEADS, SIZE = 3, 4, 2, 4
HIDDEN = HEADS * SIZE
COUNTS = np.int32([1, 2, 4])
OFFSETS = np.int32([0, 4, 5, 8, 9, 10, 11, 1, 2, 3, 6, 7]).reshape(BATCH, LENGTH)
TOKENS = OFFSETS.ravel()[:7]
ENDS = np.int32([0, 1, 3, 7])


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def packed(x: np.ndarray) -> np.ndarray:
    return x.reshape(BATCH * LENGTH, *x.shape[2:])[TOKENS]


def test_padding_is_removed_and_restored() -> None:
    """On NumPy alone: the number of tokens depends on data, so that it runs on the host."""
    x = drawn(BATCH, LENGTH, 5)
    tokens, offsets, ends, longest = OPS[DOMAIN, "RemovePadding"](HOST, x, COUNTS)
    np.testing.assert_array_equal(tokens, packed(x))
    np.testing.assert_array_equal(offsets, OFFSETS)
    np.testing.assert_array_equal(ends, ENDS)
    np.testing.assert_array_equal(longest, [4])
    assert {a.dtype for a in (offsets, ends, longest)} == {np.dtype(np.int32)}


def test_padding_becomes_zeros(xp: Backend) -> None:
    x = drawn(BATCH, LENGTH, 5)
    found = run(xp, OPS[DOMAIN, "RestorePadding"], packed(x), OFFSETS)
    is_token = np.arange(LENGTH) < COUNTS[:, None]
    np.testing.assert_array_equal(found, np.where(is_token[..., None], x, 0))


@pytest.mark.parametrize("bias", [None, drawn(1, HEADS, LENGTH, LENGTH)], ids=["", "bias"])
def test_attention(xp: Backend, bias: np.ndarray | None) -> None:
    x, weights, projection = drawn(BATCH, LENGTH, 6), drawn(6, 3 * HIDDEN), drawn(3 * HIDDEN)
    options: dict[str, Any] = {"num_heads": HEADS, "scale": 0.4}
    padded = [x, weights, projection, COUNTS, *(() if bias is None else (None, bias))]
    expected = onnxruntime_run("Attention", *padded, opset=1, domain=DOMAIN, **options)
    inputs = [packed(x), weights, projection, OFFSETS, ENDS, bias]
    found = run(xp, OPS[DOMAIN, "PackedAttention"], *inputs, **options)
    np.testing.assert_allclose(found, packed(expected), rtol=1e-3, atol=1e-3)


def test_multi_head_attention(xp: Backend) -> None:
    q, k, v = (drawn(BATCH, LENGTH, HIDDEN, seed=i) for i in range(3))
    bias = drawn(3 * HIDDEN)
    expected = onnxruntime_run(
        "MultiHeadAttention", q, k, v, bias, COUNTS, opset=1, domain=DOMAIN, num_heads=HEADS
    )
    by_head = [x.reshape(BATCH, LENGTH, HEADS, SIZE) for x in (q, k, v)]
    joined = packed(np.stack(by_head, axis=3))
    for inputs in ([packed(q), packed(k), packed(v)], [joined, None, None]):
        found = run(
            xp,
            OPS[DOMAIN, "PackedMultiHeadAttention"],
            *(*inputs, bias, OFFSETS, ENDS),
            num_heads=HEADS,
        )
        np.testing.assert_allclose(found, packed(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("offsets", "ends", "message"),
    [
        (OFFSETS[:1], ENDS, "token_offset has shape"),
        (OFFSETS, ENDS[1:], "cumulative_sequence_length has shape"),
    ],
)
def test_wrong_shapes(xp: Backend, offsets: Any, ends: Any, message: str) -> None:
    inputs = [drawn(7, 6), drawn(6, 3 * HIDDEN), drawn(3 * HIDDEN), offsets, ends]
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, "PackedAttention"], *inputs, num_heads=HEADS)
