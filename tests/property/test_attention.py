"""Attention and rotary embedding, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    INT64,
    chosen,
    drawn_array,
    drawn_types,
    one_in,
    placed,
)

EIGHTHS = np.arange(-16, 17) / 8


def attention(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T1"]
    batch, kv_heads, times, new, queries = (draw(st.integers(1, n)) for n in (2, 2, 2, 4, 4))
    width, value_width, past = draw(st.integers(1, 4)), draw(st.integers(1, 4)), 0
    heads = kv_heads * times
    flat = draw(st.booleans())

    def array(count: int, length: int, size: int, packed: bool = flat) -> np.ndarray:
        shape = (batch, length, count * size) if packed else (batch, count, length, size)
        return drawn_array(draw, dtype, shape, EIGHTHS)

    inputs: list[np.ndarray | None] = [
        array(heads, queries, width),
        array(kv_heads, new, width),
        array(kv_heads, new, value_width),
    ]
    cached = [None, None]
    if one_in(draw, 3):
        past = draw(st.integers(1, 3))
        cached = [
            array(kv_heads, past, width, False),
            array(kv_heads, past, value_width, False),
        ]
    mask = None
    if draw(st.booleans()):
        sides = draw(st.sampled_from([(), (1,), (batch, 1), (batch, heads)]))
        kind, pool = draw(st.sampled_from([(np.dtype(bool), [0, 1]), (dtype, [0, -1.5, 0.5])]))
        mask = drawn_array(draw, kind, (*sides, queries, past + new), pool)
    given: dict[str, Any] = chosen(draw, {"is_causal": [0, 1], "scale": [0.5, 1.0]})
    given |= chosen(draw, {"softcap": [0.0, 2.0]})
    if flat:
        given |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    # With a past, onnxruntime wants a present.
    outputs = draw(st.sampled_from([3, 4] if past else [1]))
    if outputs == 4:
        given |= chosen(draw, {"qk_matmul_output_mode": range(4)})
    inputs += [mask, *cached]
    return Case(
        op, opset, tuple(inputs), given, outputs=outputs, ulps=64, scale=8, **placed(draw, inputs)
    )


def rotary(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    batch, heads, length, half = (draw(st.integers(1, n)) for n in (2, 3, 4, 3))
    turned = draw(st.integers(1, half))
    size = 2 * half
    flat = draw(st.booleans())
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    x = drawn_array(draw, dtype, shape, EIGHTHS)
    given = chosen(draw, {"interleaved": [0, 1]})
    if turned < half or draw(st.booleans()):
        given["rotary_embedding_dim"] = 2 * turned
    else:
        turned = half
    if flat:
        given["num_heads"] = heads
    rows, places = (batch, length), None
    if draw(st.booleans()):
        rows = (length + 2,)
        places = drawn_array(draw, INT64, (batch, length), range(length + 2))
    caches = [drawn_array(draw, dtype, (*rows, turned), EIGHTHS) for _ in range(2)]
    inputs = (x, *caches, *([] if places is None else [places]))
    return Case(op, opset, inputs, given, ulps=8, scale=4, **placed(draw, inputs))


CASES = {"Attention": attention, "RotaryEmbedding": rotary}


@versions_of(CASES)
def test_attention(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
