from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from tests.ops.microsoft.group_query import DOMAIN, HEADS, KV_HEADS, SIZE, drawn, inputs_of, run
from tests.ops.oracle import onnxruntime_run


def compare(xp: Backend, inputs: list[Any], tolerance: float = 1e-4, **attributes: Any) -> None:
    options = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
    expected = onnxruntime_run(
        "GroupQueryAttention", *inputs, opset=1, domain=DOMAIN, outputs=3, **options
    )
    found = run(xp, inputs, **attributes)
    queries = found[0].shape[1]
    if queries == int(inputs[6]):
        # Padding after a prompt: onnxruntime's two kernels disagree about what it sees.
        is_token = np.arange(queries) <= inputs[5].reshape(-1, 1)
        found[0], expected = found[0][is_token], (expected[0][is_token], *expected[1:])
    for a, b in zip(found, expected, strict=False):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


ROTATED = {"do_rotary": 1}
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "prompt": (inputs_of(5, None, 5, [4, 4]), {}),
    "prompts of two lengths": (inputs_of(5, None, 5, [4, 2]), ROTATED),
    "prompt, empty past": (inputs_of(5, 0, 5, [4, 2]), ROTATED),
    "prompt, buffer": (inputs_of(5, 9, 5, [4, 2]), ROTATED),
    "prompt of one token": (inputs_of(1, None, 1, [0, 0]), ROTATED),
    "packed prompt": (inputs_of(5, None, 5, [4, 2], is_packed=True), ROTATED),
    "lengths as a column": (inputs_of(5, 9, 5, [[4], [2]]), {}),
    "token": (inputs_of(1, 6, 7, [6, 6]), ROTATED),
    "token, two lengths": (inputs_of(1, 6, 7, [6, 3]), ROTATED),
    "token, buffer": (inputs_of(1, 12, 7, [6, 3]), {**ROTATED, "rotary_interleaved": 1}),
    "packed token, buffer": (inputs_of(1, 12, 7, [6, 3], is_packed=True), ROTATED),
    "tokens": (inputs_of(3, 4, 7, [6]), ROTATED),
    "tokens, buffer": (inputs_of(3, 12, 7, [6]), ROTATED),
    "window": (inputs_of(5, None, 5, [4, 2]), {"local_window_size": 2}),
    "window, buffer": (inputs_of(1, 12, 7, [6, 3]), {"local_window_size": 3}),
    "no window": (inputs_of(1, 12, 7, [6, 3]), {"local_window_size": 0}),
    "softcap": (inputs_of(5, None, 5, [4, 2]), {"softcap": 0.8, "scale": 0.3}),
    "smooth softmax": (inputs_of(5, None, 5, [4, 2]), {"smooth_softmax": 1}),
    "sink": (inputs_of(5, None, 5, [4, 2], None, None, drawn(HEADS)), {}),
    "sink, window": (
        inputs_of(1, 9, 7, [6, 2], None, None, drawn(HEADS)),
        {"local_window_size": 2, "softcap": 1.5},
    ),
    "bias": (inputs_of(5, None, 5, [4, 2], None, drawn(2, 1, 5, 5)), {"local_window_size": 2}),
    "bias, token": (inputs_of(1, 9, 7, [6, 2], None, drawn(1, HEADS, 1, 7)), {"softcap": 0.7}),
    "first position": (inputs_of(5, None, 5, [4, 2], np.arange(10).reshape(2, 5) + 3), ROTATED),
    "positions": (inputs_of(1, 9, 7, [6, 2], np.asarray([[11], [3]])), ROTATED),
    "all keys": (inputs_of(5, None, 5, [4, 2]), {"causal": 0}),
    "all keys, tokens": (inputs_of(3, 9, 7, [6]), {"causal": 0}),
    "no new keys": (inputs_of(1, 7, 7, [6], keys=0), {}),
}


@pytest.mark.parametrize(("inputs", "attributes"), CASES.values(), ids=CASES)
def test_each_query_looks_at_the_rows_of_its_sample(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any]
) -> None:
    compare(xp, inputs, **attributes)


@pytest.mark.parametrize("case", ["prompts of two lengths", "token, buffer", "bias"])
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_float16(backend: Backend, case: str) -> None:
    inputs, attributes = CASES[case]
    narrow = [
        x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in inputs
    ]
    compare(backend, narrow, tolerance=5e-3, **attributes)


@pytest.mark.parametrize("case", ["softcap", "sink, window", "bias, token"])
def test_scores_and_weights(xp: Backend, case: str) -> None:
    inputs, attributes = CASES[case]
    y, _, values, weights = run(xp, inputs, qk_output=2, **attributes)
    *_, scores = run(xp, inputs, qk_output=1, **attributes)
    total = scores.shape[3]
    mixed = weights @ np.repeat(values[:, :, :total], HEADS // KV_HEADS, axis=1)
    np.testing.assert_allclose(
        y, mixed.transpose(0, 2, 1, 3).reshape(y.shape), rtol=1e-4, atol=1e-5
    )
    # The logarithms of the weights differ from the scores by one number per query.
    seen = weights > 0
    difference = np.where(seen, np.log(np.where(seen, weights, 1)) - scores, -np.inf)
    top = difference.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.where(seen, difference, top) - top, 0, atol=1e-4)
    assert not scores[~seen].any()


def test_queries_and_keys_are_normalized_before_they_are_rotated(xp: Backend) -> None:
    weights = (drawn(SIZE), drawn(SIZE, seed=1))
    inputs = inputs_of(5, None, 5, [4, 2], *(None,) * 5, *weights)

    def normalized(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        heads = x.reshape(*x.shape[:2], -1, SIZE)
        scale = np.sqrt((heads**2).mean(axis=-1, keepdims=True) + 1e-6)
        return (heads / scale * weight).reshape(x.shape).astype(np.float32)

    q, k, *rest = inputs[:-7]
    q, k = (normalized(x, weight) for x, weight in zip((q, k), weights, strict=True))
    expected = onnxruntime_run(
        "GroupQueryAttention", q, k, *rest,
        opset=1, domain=DOMAIN, outputs=3, do_rotary=1, num_heads=HEADS, kv_num_heads=KV_HEADS,
    )  # fmt: skip
    found = run(xp, inputs, **ROTATED)
    for a, b in zip(found, expected, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_in_a_model(xp: Backend) -> None:
    """The total length is read at load, whatever its shape."""
    inputs = inputs_of(1, 12, [7], [6, 3])
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1}
    expected = onnxruntime_run(
        "GroupQueryAttention", *inputs, opset=1, domain=DOMAIN, outputs=3, **options
    )
    found = sardonyx.run_op(
        "GroupQueryAttention", *inputs, domain=DOMAIN, outputs=3, backend=xp, **options
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(xp.fetch(a), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        (inputs_of(5, None, 4, [4, 2]), {}, "total_sequence_length is 4"),
        (inputs_of(5, None, 5, [4, 2]), {"kv_num_heads": 3}, "no multiple"),
        (inputs_of(1, 6, 7, [6, 3], np.zeros((2, 2), np.int64)), ROTATED, "position_ids has"),
        (inputs_of(5, None, 5, [4, 2], None, drawn(2, 3, 5, 5)), {}, "does not broadcast"),
        (inputs_of(5, None, 5, [4, 2], None, None, drawn(3)), {}, "head_sink has shape"),
        (inputs_of(5, None, 5, [4, 2], keys=3), {}, "key has 3 tokens"),
    ],
)
def test_wrong_shapes(
    xp: Backend, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, inputs, **attributes)
