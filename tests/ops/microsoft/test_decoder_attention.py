from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
NAME = "DecoderMaskedMultiHeadAttention"
BATCH, HEADS, SIZE, PAST, ROOM = 4, 2, 4, 3, 8
HIDDEN = HEADS * SIZE


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


NEW = [drawn(BATCH, 1, HIDDEN, seed=i) for i in range(3)]
BUFFERS = [drawn(BATCH, HEADS, ROOM, SIZE, seed=i) for i in (3, 4)]
CROSS = [drawn(BATCH, HEADS, 5, SIZE, seed=i) for i in (5, 6)]
BIAS = drawn(3 * HIDDEN)
MASK = np.int32([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
BEAMS = np.random.default_rng(0).integers(0, 2, (2, 2, ROOM)).astype(np.int32)
TWO = np.int32([2])
SHARED = {"past_present_share_buffer": 1}
CASES: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
    "buffer": ([*NEW, MASK, None, *BUFFERS, np.int32([PAST]), None, None, BIAS], 3, SHARED),
    "beams": ([*NEW, MASK, None, *BUFFERS, np.int32([PAST]), TWO, BEAMS, BIAS], 3, SHARED),
    "beams, bias": (
        [*NEW, None, drawn(1, HEADS, 1, PAST + 1), *BUFFERS, np.int32([PAST]), TWO, BEAMS],
        3,
        {**SHARED, "mask_filter_value": -5.0, "scale": 0.3},
    ),
    "encoder": ([NEW[0], *CROSS, None, None, None, None, None, None, None, BIAS], 1, {}),
    "encoder and mask": ([NEW[0], *CROSS, np.ones((BATCH, 5), np.int32)], 1, {}),
}


@pytest.mark.parametrize(("inputs", "outputs", "attributes"), CASES.values(), ids=CASES)
def test_one_token(
    xp: Backend, inputs: list[Any], outputs: int, attributes: dict[str, Any]
) -> None:
    expected = onnxruntime_run(
        NAME, *inputs, opset=1, domain=DOMAIN, outputs=outputs, num_heads=HEADS, **attributes
    )
    found = run(xp, OPS[DOMAIN, NAME], *inputs, num_heads=HEADS, **attributes)
    for a, b in zip(found, expected if outputs > 1 else [expected], strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_joined_inputs_and_a_past_that_grows(xp: Backend) -> None:
    """Not in onnxruntime's CPU kernel; MultiHeadAttention says what they are."""
    op = OPS[DOMAIN, NAME]
    past = [x[:, :, :PAST] for x in BUFFERS]
    expected = onnxruntime_run(
        "MultiHeadAttention",
        *(*NEW, BIAS, MASK, None, *past),
        opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS,
    )  # fmt: skip
    joined = np.concatenate(NEW, axis=-1)
    for new in (NEW, [joined, None, None]):
        inputs = [*new, MASK, None, *past, None, None, None, BIAS]
        found = run(xp, op, *inputs, num_heads=HEADS)
        for a, b in zip(found, expected, strict=False):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def reordered(keys: np.ndarray) -> np.ndarray:
    """The buffer as its documentation has it: pieces of four elements, and tokens before them."""
    parts = keys.reshape(*keys.shape[:3], SIZE // 4, 4)
    return parts.transpose(0, 1, 3, 2, 4).reshape(keys.shape)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("do_rotary", [0, 1])
def test_self_attention(xp: Backend, is_shared: bool, do_rotary: int) -> None:
    x, weights, bias = drawn(BATCH, 1, 6), drawn(6, 3 * HIDDEN), BIAS
    past = np.stack(BUFFERS)[:, :, :, :PAST]
    options: dict[str, Any] = {"num_heads": HEADS, "do_rotary": do_rotary}
    expected, state = run(
        xp, OPS[DOMAIN, "Attention"], x, weights, bias, MASK, past, outputs=2, **options
    )
    op = OPS[DOMAIN, "DecoderMaskedSelfAttention"]
    length = np.int32([PAST])
    if is_shared:
        options["past_present_share_buffer"] = 1
        past = np.stack([reordered(BUFFERS[0]), BUFFERS[1]])
    found, present = run(xp, op, x, weights, bias, MASK, past, None, length, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    if is_shared:
        keys = BUFFERS[0].copy()
        keys[:, :, : PAST + 1] = state[0]
        np.testing.assert_allclose(present[0], reordered(keys), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(present[1][:, :, : PAST + 1], state[1], rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_allclose(present, state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize("static_kv", [False, True])
def test_decoder_attention(xp: Backend, static_kv: bool, has_past: bool, has_mask: bool) -> None:
    """Not in onnxruntime's CPU kernels; MultiHeadAttention says what it is."""
    batch, length, encoded = 2, 3, 5
    query, key = drawn(length, batch, HIDDEN), drawn(encoded, batch, HIDDEN)
    q_weight, kv_weight = drawn(HIDDEN, HIDDEN), drawn(HIDDEN, 2 * HIDDEN)
    caches = drawn(2, batch, HEADS, encoded if static_kv else PAST, SIZE)
    source = key if static_kv else query
    projected = (source @ kv_weight).swapaxes(0, 1)
    inputs = [(query @ q_weight).swapaxes(0, 1), *np.split(projected, 2, axis=-1), BIAS]
    if has_past and static_kv:
        inputs = [inputs[0], *caches, BIAS]
    total = encoded if static_kv else length + PAST * has_past
    mask = np.zeros((batch, total), bool)
    mask[1, 1:] = True
    past = list(caches) if has_past and not static_kv else []
    expected = onnxruntime_run(
        "MultiHeadAttention",
        *(*inputs, (~mask).astype(np.int32) if has_mask else None, None, *past),
        opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS,
    )  # fmt: skip
    found = run(
        xp,
        OPS[DOMAIN, "DecoderAttention"],
        *(query, key, q_weight, kv_weight, BIAS, mask, *caches),
        static_kv=static_kv,
        use_past=has_past,
        has_layer_state=True,
        has_key_padding_mask=has_mask,
        num_heads=HEADS,
    )
    np.testing.assert_allclose(found[0].swapaxes(0, 1), expected[0], rtol=1e-3, atol=1e-3)
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([np.concatenate(NEW, axis=1)], {}, "one token"),
        ([*NEW, None, None, BUFFERS[0]], {}, "go together"),
        ([*NEW, None, None, *BUFFERS], SHARED, "needs the input past_sequence_length"),
        (
            [*NEW, None, None, *BUFFERS, np.int32([PAST]), None, BEAMS[:1]],
            SHARED,
            "cache_indirection has shape",
        ),
    ],
)
def test_wrong_shapes(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, NAME], *inputs, num_heads=HEADS, **attributes)
