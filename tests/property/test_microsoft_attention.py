"""Attention and rotary embedding of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw
from tests.property.case import Case
from tests.property.microsoft import (
    EIGHTHS,
    HALF,
    INT32,
    SINGLE,
    assert_drawn_agree,
    drawn_float,
    node,
    or_none,
)
from tests.property.strategies import INT64, Shape, chosen, drawn_array, one_in

SCALES = [0.25, 0.5, 1.0]


def array(draw: Draw, *shape: int, dtype: Any = SINGLE) -> np.ndarray:
    return drawn_array(draw, dtype, shape, EIGHTHS)


def drawn_mask(draw: Draw, batch: int, queries: int, keys: int) -> np.ndarray | None:
    """None, the lengths of the samples, or which keys they attend; the first one always."""
    kind = draw(st.sampled_from(["none", "lengths", "keys", "queries and keys"]))
    if kind == "none":
        return None
    if kind == "lengths":
        return drawn_array(draw, INT32, (batch,), range(1, keys + 1))
    shape: Shape = (batch, keys) if kind == "keys" else (batch, queries, keys)
    mask = drawn_array(draw, INT32, shape, [0, 1, 1])
    mask[..., 0] = 1
    return mask


def drawn_bias(draw: Draw, batch: int, heads: int, queries: int, keys: int) -> np.ndarray | None:
    sides = (draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])))
    return array(draw, *sides, queries, keys) if one_in(draw, 3) else None


def attention(draw: Draw, op: str) -> Case:
    """Attention, which projects one input to queries, keys and values."""
    batch, length, width, heads = (draw(st.integers(1, n)) for n in (3, 4, 5, 3))
    size = draw(st.integers(1, 4))
    given: dict[str, Any] = {"num_heads": heads}
    given |= chosen(draw, {"unidirectional": [0, 1], "scale": SCALES})
    value_size, past = size, None
    if one_in(draw, 4):
        value_size = draw(st.integers(1, 4))
        given["qkv_hidden_sizes"] = [heads * size, heads * size, heads * value_size]
    elif one_in(draw, 2):
        past = array(draw, 2, batch, heads, draw(st.integers(1, 3)), size)
    keys = length + (0 if past is None else past.shape[3])
    hidden = heads * (2 * size + value_size)
    inputs = [
        *(array(draw, batch, length, width), array(draw, width, hidden), array(draw, hidden)),
        *(drawn_mask(draw, batch, length, keys), past),
        # onnxruntime takes no bias beside a past.
        drawn_bias(draw, batch, heads, length, keys) if past is None else None,
    ]
    outputs = 1 if past is None else 2
    return node(draw, op, inputs, given, outputs=outputs, ulps=64, scale=32)


def multi_head(draw: Draw, op: str) -> Case:
    batch, queries, keys, heads = (draw(st.integers(1, n)) for n in (3, 4, 4, 3))
    has_past, size = one_in(draw, 3), draw(st.integers(1, 4))
    # onnxruntime takes a past only if keys and values have the same size.
    value_size = size if has_past else draw(st.integers(1, 4))
    given: dict[str, Any] = {"num_heads": heads, **chosen(draw, {"scale": SCALES})}
    given |= chosen(draw, {"unidirectional": [0, 1]})
    new = [
        array(draw, batch, queries, heads * size),
        array(draw, batch, keys, heads * size),
        array(draw, batch, keys, heads * value_size),
    ]
    past: list[np.ndarray | None] = [None, None]
    if has_past:
        count = draw(st.integers(1, 3))
        past = [array(draw, batch, heads, count, n) for n in (size, value_size)]
        keys += count
    bias = or_none(draw, array(draw, heads * (2 * size + value_size)))
    inputs = [
        *(*new, bias, drawn_mask(draw, batch, queries, keys)),
        *(drawn_bias(draw, batch, heads, queries, keys), *past),
    ]
    outputs = 3 if has_past else 1
    return node(draw, op, inputs, given, outputs=outputs, ulps=64, scale=32)


def grouped(draw: Draw, op: str) -> Case:
    """A prompt, or one token after a past that is as long as the buffer or shorter."""
    dtype = drawn_float(draw, SINGLE, HALF)
    batch, kv_heads, times = (draw(st.integers(1, n)) for n in (2, 2, 3))
    heads, rotates = kv_heads * times, draw(st.booleans())
    # onnxruntime rotates heads of multiples of 16 elements only.
    size = 16 if rotates else 8
    is_prompt = draw(st.booleans())
    queries = draw(st.integers(1, 4)) if is_prompt else 1
    past = 0 if is_prompt else draw(st.integers(1, 5))
    total = queries + past
    lengths = drawn_array(draw, INT32, (batch,), [total - 1])
    given: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv_heads}
    given |= chosen(draw, {"scale": SCALES, "softcap": [2.0], "local_window_size": [1, 2, 3]})
    given |= chosen(draw, {"smooth_softmax": [0, 1]})
    is_packed = one_in(draw, 3)
    if is_packed:
        new = [array(draw, batch, queries, (heads + 2 * kv_heads) * size, dtype=dtype), None, None]
    else:
        widths = (heads * size, kv_heads * size, kv_heads * size)
        new = [array(draw, batch, queries, width, dtype=dtype) for width in widths]
    room = past + (0 if is_prompt else draw(st.integers(0, 3)))
    cache: list[np.ndarray | None] = [None, None]
    if room:
        cache = [array(draw, batch, kv_heads, room, size, dtype=dtype) for _ in range(2)]
    inputs = [*new, *cache, lengths, np.array(total, np.int32)]
    if rotates:
        given |= {"do_rotary": 1, **chosen(draw, {"rotary_interleaved": [0, 1]})}
        inputs += [array(draw, total + 2, size // 2, dtype=dtype) for _ in range(2)]
    return node(draw, op, inputs, given, outputs=3, ulps=64, scale=32)


def rotary(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, HALF)
    batch, heads, length, half = (draw(st.integers(1, n)) for n in (2, 3, 4, 4))
    size, rows = 2 * half, length + 3
    if draw(st.booleans()):
        x = array(draw, batch, heads, length, size, dtype=dtype)
    else:
        x = array(draw, batch, length, heads * size, dtype=dtype)
    places = drawn_array(draw, INT64, (1,), range(4))
    if draw(st.booleans()):
        places = drawn_array(draw, INT64, (batch, length), range(rows))
    given = chosen(draw, {"interleaved": [0, 1], "scale": [1.0]})
    turned = half
    if x.ndim == 3 and one_in(draw, 3):
        turned = draw(st.integers(1, half))
        given |= {"rotary_embedding_dim": 2 * turned, "num_heads": heads}
    inputs = [x, places, *(array(draw, rows, turned, dtype=dtype) for _ in range(2))]
    return node(draw, op, inputs, given, ulps=8, scale=8)


CASES = {
    "Attention": attention,
    "MultiHeadAttention": multi_head,
    "GroupQueryAttention": grouped,
    "RotaryEmbedding": rotary,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", CASES)
def test_attention(op: str) -> None:
    assert_drawn_agree(CASES[op], op)
