"""PagedAttention, which onnxruntime has on GPUs only, against GroupQueryAttention by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN, NAME = "com.microsoft", "PagedAttention"
HEADS, KV_HEADS, SIZE, ROWS = 4, 2, 16, 4
PAST, NEW = (5, 0, 9), (1, 3, 1)
# No sample has its pages in order, and the second has fewer of them.
TABLE = np.int32([[3, 1, 7], [6, -1, -1], [0, 5, 2]])
ENDS = np.int32([0, 1, 4, 5])


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


TOKENS = [drawn(5, heads * SIZE, seed=i) for i, heads in enumerate((HEADS, KV_HEADS, KV_HEADS))]
CACHES = [drawn(8, ROWS, KV_HEADS, SIZE, seed=i) for i in (3, 4)]
ROTARY = [drawn(16, SIZE // 2, seed=i) for i in (5, 6)]
SINK = drawn(HEADS)


def by_sample(sample: int, sink: np.ndarray | None, **attributes: Any) -> list[np.ndarray]:
    """The sample alone, with its pages in one piece."""
    tokens = slice(ENDS[sample], ENDS[sample + 1])
    past, total = PAST[sample], PAST[sample] + NEW[sample]
    caches = [
        cache[TABLE[sample]].reshape(-1, KV_HEADS, SIZE).swapaxes(0, 1)[None, :, :past]
        for cache in CACHES
    ]
    inputs = [*(x[None, tokens] for x in TOKENS), *caches, np.int32([total - 1]), np.int32([total])]
    results: list[np.ndarray] = onnxruntime_run(
        "GroupQueryAttention", *inputs, *ROTARY, None, None, sink,
        opset=1, domain=DOMAIN, outputs=3, num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes,
    )  # fmt: skip
    return results


@pytest.mark.parametrize("form", ["apart", "joined", "slots"])
@pytest.mark.parametrize(
    ("sink", "attributes"),
    [
        (None, {}),
        (None, {"do_rotary": 1, "rotary_interleaved": 1}),
        (SINK, {"local_window_size": 2, "softcap": 0.8}),
        (None, {"scale": 0.3}),
    ],
)
def test_each_token_looks_at_the_pages_of_its_sample(
    xp: Backend, form: str, sink: np.ndarray | None, attributes: dict[str, Any]
) -> None:
    new: list[Any] = TOKENS if form != "joined" else [np.concatenate(TOKENS, axis=1), None, None]
    slots = np.int32([1 * ROWS + 1, 24, 25, 26, 2 * ROWS + 1]) if form == "slots" else None
    inputs = [*new, *CACHES, ENDS, np.int32(PAST), TABLE, *ROTARY, slots, sink]
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
    y, *caches = run(xp, OPS[DOMAIN, NAME], *inputs, **options)
    for sample in range(3):
        expected, *present = by_sample(sample, sink, **attributes)
        np.testing.assert_allclose(
            y[ENDS[sample] : ENDS[sample + 1]], expected[0], rtol=1e-4, atol=1e-4
        )
        for cache, rows in zip(caches, present, strict=True):
            pages = cache[TABLE[sample]].reshape(-1, KV_HEADS, SIZE).swapaxes(0, 1)
            found = pages[:, : rows.shape[2]]
            np.testing.assert_allclose(found, rows[0], rtol=1e-5, atol=1e-5)


def test_all_tokens_of_a_sample_without_causality(xp: Backend) -> None:
    inputs = [*TOKENS, *CACHES, ENDS, np.int32(PAST), TABLE]
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    y, *_ = run(xp, OPS[DOMAIN, NAME], *inputs, is_causal=0, **options)
    for sample in range(3):
        expected, *_ = by_sample(sample, None, causal=0)
        np.testing.assert_allclose(
            y[ENDS[sample] : ENDS[sample + 1]], expected[0], rtol=1e-4, atol=1e-4
        )


def test_a_token_without_a_slot_is_not_written(xp: Backend) -> None:
    slots = np.full(5, -1, np.int32)
    inputs = [*TOKENS, *CACHES, ENDS, np.int32(PAST), TABLE, None, None, slots]
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    _, *caches = run(xp, OPS[DOMAIN, NAME], *inputs, **options)
    for found, cache in zip(caches, CACHES, strict=True):
        np.testing.assert_array_equal(found, cache)


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        ({}, {"kv_cache_layout": "LATENT"}, "is not supported"),
        ({}, {"k_quant_type": "PER_TENSOR"}, "quantized cache"),
        ({}, {"num_heads": 3}, "no multiple"),
        ({3: CACHES[0][..., :8]}, {}, "key_cache has shape"),
        ({7: TABLE[0]}, {}, "block_table has 1 axes"),
        ({5: ENDS[1:]}, {}, "cumulative_sequence_length has shape"),
    ],
)
def test_wrong_shapes(
    xp: Backend, changes: dict[int, Any], attributes: dict[str, Any], message: str
) -> None:
    inputs = [*TOKENS, *CACHES, ENDS, np.int32(PAST), TABLE]
    inputs = [changes.get(i, x) for i, x in enumerate(inputs)]
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, NAME], *inputs, **options)
