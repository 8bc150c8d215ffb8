from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import BYTES, DOMAIN, floats, integers
from tests.ops.oracle import onnxruntime_run, run
from tests.support.byte_products import byte_factors

BATCH, LENGTH, SIZE, HEADS, HIDDEN = 2, 4, 6, 2, 8


def as_onnxruntime(xp: Backend, name: str, inputs: Any, **attributes: Any) -> None:
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, outputs=2, **attributes)
    results = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def attention_inputs(
    dtype: Any = np.uint8, per_column: Any = (), mask: Any = None, past: Any = None
) -> list[Any]:
    scale = np.abs(floats(*per_column)) / 50 + 0.005
    return [
        integers(np.uint8, BATCH, LENGTH, SIZE),
        byte_factors(integers(dtype, SIZE, 3 * HIDDEN)),
        floats(3 * HIDDEN),
        np.array(0.013, np.float32),
        np.asarray(scale).astype(np.float32),
        mask,
        np.array(120, np.uint8),
        integers(dtype, *per_column),
        past,
    ]


MASKS: dict[str, Any] = {
    "lengths": np.array([3, 1]),
    "ends and starts": np.array([3, 4, 1, 2]),
    "keys": np.array([[1, 0, 1, 1], [0, 1, 1, 0]]),
    "one for all": np.array([[1]]),
    "queries and keys": integers(np.int8, BATCH, LENGTH, LENGTH) > 0,
    "none": None,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_masks(xp: Backend, mask: Any, unidirectional: int) -> None:
    mask = None if mask is None else mask.astype(np.int32)
    inputs = attention_inputs(mask=mask)
    as_onnxruntime(xp, "QAttention", inputs, num_heads=HEADS, unidirectional=unidirectional)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("per_column", [(), (3 * HIDDEN,)])
def test_attention_with_a_past(xp: Backend, per_column: Any, dtype: Any) -> None:
    past = floats(2, BATCH, HEADS, 3, HIDDEN // HEADS)
    inputs = attention_inputs(dtype, per_column, past=past)
    as_onnxruntime(xp, "QAttention", inputs, num_heads=HEADS, unidirectional=1)


def test_attention_without_zero_points(xp: Backend) -> None:
    inputs = [*attention_inputs()[:6], None, None]
    as_onnxruntime(xp, "QAttention", inputs, num_heads=HEADS, scale=0.3)


def embeddings(dtype: Any, *, has_segments: bool, has_mask: bool) -> list[Any]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 9, (BATCH, LENGTH)).astype(np.int32)
    segments = (ids % 2).astype(np.int32) if has_segments else None
    tables: list[Any] = [integers(dtype, n, HIDDEN) for n in (9, 5, 2)]
    scales: list[Any] = [np.array(n / 100, np.float32) for n in (2, 3, 5, 1, 4)]
    zeros: list[Any] = [np.asarray(integers(dtype, seed=i)) for i in range(5)]
    if not has_segments:
        for of_tables in (tables, scales, zeros):
            of_tables[2] = None
    mask = (ids % 3 > 0).astype(np.int32) if has_mask else None
    vectors = [integers(dtype, HIDDEN, seed=i) for i in (1, 2)]
    return [ids, segments, *tables, *vectors, mask, *scales, *zeros]


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("has_segments", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_embeddings(xp: Backend, has_mask: bool, has_segments: bool, dtype: Any) -> None:
    inputs = embeddings(dtype, has_segments=has_segments, has_mask=has_mask)
    as_onnxruntime(xp, "QEmbedLayerNormalization", inputs, epsilon=1e-5)


def changed(inputs: list[Any], place: int, value: Any) -> list[Any]:
    return [*inputs[:place], value, *inputs[place + 1 :]]


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        (attention_inputs(), {"num_heads": 3}, "3 heads"),
        (attention_inputs(), {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        (attention_inputs(mask=np.ones(7, np.int32)), {"num_heads": 2}, "mask"),
        (attention_inputs(past=floats(2, 2)), {"num_heads": 2}, "past"),
        (changed(attention_inputs(), 1, integers(np.uint8, 6, 8)), {"num_heads": 2}, "hidden"),
    ],
)
def test_attention_refuses(xp: Backend, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, "QAttention"], *inputs, **attributes)


def test_embeddings_refuse(xp: Backend) -> None:
    inputs = embeddings(np.uint8, has_segments=True, has_mask=True)
    for place, value, message in [
        (0, np.zeros(3, np.int32), "two axes"),
        (1, np.zeros((2, 3), np.int32), "segment_ids"),
        (3, inputs[3][:2], "2 embeddings"),
        (7, np.zeros(2, np.int32), "mask"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(xp, OPS[DOMAIN, "QEmbedLayerNormalization"], *changed(inputs, place, value))
