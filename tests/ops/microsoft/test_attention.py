from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
BATCH, HEADS, SIZE, LENGTH, PAST = 2, 2, 4, 3, 2
HIDDEN = HEADS * SIZE
LOWEST = float(np.finfo(np.float32).min)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def flags(*shape: int) -> np.ndarray:
    """A mask in which the last sample has no key."""
    mask = (np.random.default_rng(0).random(shape) < 0.6).astype(np.int32)
    mask[-1] = 0
    return mask


def with_infinities(*shape: int) -> np.ndarray:
    bias = drawn(*shape)
    bias[..., 1:][drawn(*shape, seed=1)[..., 1:] > 0.5] = -np.inf
    return bias


def assert_close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        # A row without a visible key adds the same large number to all scores, which rounds them.
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def compare(xp: Backend, name: str, inputs: list[Any], outputs: int, **attributes: Any) -> None:
    op = OPS[DOMAIN, name]
    options = {"num_heads": HEADS, **attributes}
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, outputs=outputs, **options)
    if op.at(1).counts_outputs:
        options["outputs"] = outputs
    found = run(xp, op, *inputs, **options)
    if not isinstance(found, tuple):
        found = (found,)
    assert_close(found[:outputs], expected if outputs > 1 else [expected])


PROJECTION = [drawn(BATCH, LENGTH, 6), drawn(6, 3 * HIDDEN), drawn(3 * HIDDEN)]
STATE = drawn(2, BATCH, HEADS, PAST, SIZE)
ATTENTION: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": ([], {}),
    "scale": ([], {"scale": 0.3}),
    "causal": ([], {"unidirectional": 1}),
    "lengths": ([np.asarray([2, 0], np.int32)], {}),
    "lengths out of range": ([np.asarray([9, 1], np.int32)], {"unidirectional": 1}),
    "ends and starts": ([np.asarray([3, 2, 1, 5], np.int32)], {}),
    "packed lengths": ([np.asarray([2, 1, 0, 0, 0, 0, 0, 0], np.int32)], {}),
    "keys": ([flags(BATCH, LENGTH)], {}),
    "keys, causal": ([flags(BATCH, LENGTH)], {"unidirectional": 1}),
    "keys, lowest": ([flags(BATCH, LENGTH)], {"mask_filter_value": LOWEST, "unidirectional": 1}),
    "one number": ([np.zeros((1, 1), np.int32)], {}),
    "one number per sample": ([np.zeros((BATCH, 1), np.int32)], {}),
    "queries and keys": ([flags(BATCH, LENGTH, LENGTH)], {"unidirectional": 1}),
    "bias": ([None, None, drawn(1, HEADS, LENGTH, LENGTH)], {}),
    "bias by sample": ([flags(BATCH, LENGTH), None, drawn(BATCH, 1, LENGTH, LENGTH)], {}),
    "past": ([flags(BATCH, PAST + LENGTH), STATE], {"unidirectional": 1}),
    "empty past": ([None, STATE[:, :, :, :0]], {"unidirectional": 1}),
}


@pytest.mark.parametrize(("inputs", "attributes"), ATTENTION.values(), ids=ATTENTION)
def test_attention(xp: Backend, inputs: list[Any], attributes: dict[str, Any]) -> None:
    compare(xp, "Attention", [*PROJECTION, *inputs], 2, **attributes)


def test_values_of_another_size(xp: Backend) -> None:
    inputs = [drawn(BATCH, LENGTH, 6), drawn(6, 2 * HIDDEN + 6), drawn(2 * HIDDEN + 6)]
    compare(xp, "Attention", inputs, 1, qkv_hidden_sizes=[HIDDEN, HIDDEN, 6])


def test_no_samples(xp: Backend) -> None:
    compare(xp, "Attention", [PROJECTION[0][:0], *PROJECTION[1:]], 1)


def test_without_a_bias_it_is_zeros(xp: Backend) -> None:
    x, weights, bias = PROJECTION
    op = OPS[DOMAIN, "Attention"]
    options: dict[str, Any] = {"num_heads": HEADS, "outputs": 2}
    found = run(xp, op, x, weights, **options)
    assert_close(found, run(xp, op, x, weights, np.zeros_like(bias), **options))


def test_a_mask_of_four_axes_is_read_at_the_queries_own_rows(xp: Backend) -> None:
    longest = 7
    mask = flags(BATCH, 1, longest, longest)
    total = PAST + LENGTH
    own = mask[:, 0, PAST:total, :total]
    op = OPS[DOMAIN, "Attention"]
    options: dict[str, Any] = {"num_heads": HEADS, "outputs": 2}
    found = run(xp, op, *PROJECTION, mask, STATE, **options)
    assert_close(found, run(xp, op, *PROJECTION, own, STATE, **options))


def test_rotated_queries_and_keys(xp: Backend) -> None:
    """The projections, rotated here, and attended by MultiHeadAttention."""
    x, weights, bias = PROJECTION
    options: dict[str, Any] = {"num_heads": HEADS, "unidirectional": 1}
    found, _ = run(
        xp, OPS[DOMAIN, "Attention"], *PROJECTION, None, STATE, do_rotary=1, outputs=2, **options
    )
    q, k, v = np.split(x @ weights + bias, 3, axis=-1)
    angles = (PAST + np.arange(LENGTH))[:, None] * 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    cos, sin = (f(angles)[None, :, None] for f in (np.cos, np.sin))

    def turned(part: np.ndarray) -> np.ndarray:
        a, b = np.split(part.reshape(BATCH, LENGTH, HEADS, SIZE), 2, axis=-1)
        pair = [a * cos - b * sin, a * sin + b * cos]
        return np.concatenate(pair, axis=-1).reshape(part.shape).astype(np.float32)

    inputs = [turned(q), turned(k), v, None, None, None, *STATE]
    expected = onnxruntime_run(
        "MultiHeadAttention", *inputs, opset=1, domain=DOMAIN, outputs=3, **options
    )[0]
    assert_close([found], [expected])


QUERY, KEY, VALUE = drawn(BATCH, LENGTH, HIDDEN), drawn(BATCH, 5, HIDDEN), drawn(BATCH, 5, HIDDEN)
OWN = drawn(BATCH, LENGTH, HIDDEN, seed=1)
CROSS = drawn(2, BATCH, HEADS, 5, SIZE)
BIAS = drawn(3 * HIDDEN)
MULTI_HEAD: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": ([QUERY, KEY, VALUE], {"scale": 0.7}),
    "bias": ([QUERY, KEY, VALUE, BIAS], {}),
    "values of another size": ([QUERY, KEY, drawn(BATCH, 5, 6)], {}),
    "causal": ([QUERY, OWN, OWN], {"unidirectional": 1}),
    "causal, more keys": ([QUERY, KEY, VALUE], {"unidirectional": 1}),
    "causal, one query": ([QUERY[:, :1], KEY, VALUE], {"unidirectional": 1}),
    "lengths": ([QUERY, KEY, VALUE, BIAS, np.asarray([3, 0], np.int32)], {}),
    "packed lengths": ([QUERY, KEY, VALUE, BIAS, np.arange(8, dtype=np.int32)], {}),
    "keys": ([QUERY, KEY, VALUE, None, flags(BATCH, 5)], {}),
    "queries and keys": (
        [QUERY, KEY, VALUE, BIAS, flags(BATCH, LENGTH, 5), drawn(BATCH, 1, LENGTH, 5)],
        {"unidirectional": 1},
    ),
    "infinite bias": (
        [QUERY, KEY, VALUE, None, None, with_infinities(1, HEADS, LENGTH, 5)],
        {},
    ),
    "past": (
        [QUERY, OWN, OWN, BIAS, flags(BATCH, PAST + LENGTH), None, *STATE],
        {"unidirectional": 1},
    ),
    "by head": ([QUERY, *CROSS], {}),
    "by head, bias of queries": ([QUERY, *CROSS, BIAS], {}),
    "no keys": ([QUERY, KEY[:, :0], VALUE[:, :0]], {}),
    "buffer": (
        [QUERY, OWN, OWN, BIAS, None, None, *drawn(2, BATCH, HEADS, 9, SIZE), np.int32([4])],
        {},
    ),
    "buffer and mask": (
        [
            *(QUERY[:, :1], OWN[:, :1], OWN[:, :1], None, np.int32([[1, 0, 1], [1, 1, 1]]), None),
            *(*drawn(2, BATCH, HEADS, 9, SIZE), np.int32([2])),
        ],
        {"unidirectional": 1},
    ),
}


@pytest.mark.parametrize(("inputs", "attributes"), MULTI_HEAD.values(), ids=MULTI_HEAD)
def test_multi_head_attention(xp: Backend, inputs: list[Any], attributes: dict[str, Any]) -> None:
    outputs = 1 if inputs[1].size == 0 else 3
    compare(xp, "MultiHeadAttention", inputs, outputs, **attributes)


def test_joined_keys_and_values(xp: Backend) -> None:
    op = OPS[DOMAIN, "MultiHeadAttention"]
    q, k, v = (x.reshape(BATCH, LENGTH, HEADS, SIZE) for x in (QUERY, OWN, OWN[::-1]))
    plain = (QUERY, OWN, OWN[::-1], BIAS)
    expected = onnxruntime_run(
        "MultiHeadAttention", *plain, opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS
    )
    all_joined = (np.stack([q, k, v], axis=3), None, None, BIAS)
    two_joined = (QUERY, np.stack([k, v], axis=3), None, BIAS)
    for inputs in (all_joined, two_joined):
        found = run(xp, op, *inputs, num_heads=HEADS)
        assert_close(found[:3], expected)


def test_scores_are_those_that_the_softmax_reads(xp: Backend) -> None:
    inputs, attributes = MULTI_HEAD["queries and keys"]
    op = OPS[DOMAIN, "MultiHeadAttention"]
    y, _, values, scores = run(xp, op, *inputs, num_heads=HEADS, **attributes)
    assert np.isfinite(scores).all()
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = (weights @ values).transpose(0, 2, 1, 3).reshape(y.shape)
    np.testing.assert_allclose(y, mixed, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_beams_read_the_past_of_their_origins(backend: Backend, dtype: Any) -> None:
    length, past, beams = 6, 3, 2
    buffers = drawn(2, 4, HEADS, length, SIZE)
    origins = np.random.default_rng(0).integers(0, beams, (2, beams, length)).astype(np.int32)
    moved = buffers.copy()
    for sample, place in np.ndindex(4, past):
        origin = sample - sample % beams + origins.reshape(4, length)[sample, place]
        moved[:, sample, :, place] = buffers[:, origin, :, place]
    new = [drawn(4, 1, HIDDEN, seed=i) for i in range(3)]
    expected = onnxruntime_run(
        "MultiHeadAttention",
        *(*new, None, None, None, *moved, np.int32([past])),
        opset=1, domain=DOMAIN, num_heads=HEADS, outputs=3,
    )  # fmt: skip
    inputs = [*new, None, None, None, *buffers]
    narrow = [x if x is None else x.astype(dtype) for x in inputs]
    found = run(
        backend,
        OPS[DOMAIN, "MultiHeadAttention"],
        *(*narrow, np.int32([past]), origins),
        num_heads=HEADS,
    )
    assert found[0].dtype == dtype
    np.testing.assert_allclose(found[0].astype(np.float32), expected[0], rtol=2e-2, atol=5e-3)
    buffers[0][:, :, past] = new[1].reshape(4, HEADS, SIZE)
    np.testing.assert_array_equal(found[1], buffers[0].astype(dtype))


def test_a_shared_buffer_of_attention(xp: Backend) -> None:
    op = OPS[DOMAIN, "Attention"]
    options: dict[str, Any] = {"num_heads": HEADS, "outputs": 2, "unidirectional": 1}
    buffer = drawn(2, BATCH, HEADS, 9, SIZE)
    inputs = [*PROJECTION, flags(BATCH, PAST + LENGTH)]
    expected, state = run(xp, op, *inputs, buffer[:, :, :, :PAST], **options)
    found, present = run(
        xp, op, *inputs, buffer, None, np.int32([PAST]), past_present_share_buffer=1, **options
    )
    assert_close([found, present[:, :, :, : PAST + LENGTH]], [expected, state])
    np.testing.assert_array_equal(
        present[:, :, :, PAST + LENGTH :], buffer[:, :, :, PAST + LENGTH :]
    )


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        ("Attention", [*PROJECTION, flags(BATCH, 9)], {}, "mask of shape"),
        ("Attention", PROJECTION, {"num_heads": 3}, "divided into 3 heads"),
        ("Attention", PROJECTION, {"qkv_hidden_sizes": (1, 2, 3)}, "add up to"),
        ("Attention", [*PROJECTION, None, STATE[0]], {}, "past has shape"),
        ("Attention", [*PROJECTION, None, STATE], {"past_present_share_buffer": 1}, "needs the"),
        ("MultiHeadAttention", [QUERY, KEY, VALUE, BIAS[1:]], {}, "bias has shape"),
        ("MultiHeadAttention", [QUERY], {}, "query has shape"),
        ("MultiHeadAttention", [QUERY, KEY, None], {}, "key has shape"),
        ("MultiHeadAttention", [QUERY, KEY, VALUE, None, None, None, STATE[0]], {}, "go together"),
        (
            "MultiHeadAttention",
            [QUERY, KEY, VALUE, None, None, drawn(3, 1, 1, 1)],
            {},
            "does not broadcast",
        ),
    ],
)
def test_wrong_shapes(
    xp: Backend, name: str, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    options = {"num_heads": HEADS, **attributes}
    if name == "Attention":
        options["outputs"] = 1
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, name], *inputs, **options)
