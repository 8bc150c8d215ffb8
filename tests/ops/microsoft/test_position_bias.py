"""Biases by distance, which onnxruntime has on GPUs only, compared with their definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import run

DOMAIN = "com.microsoft"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng([0, *shape]).standard_normal(shape).astype(np.float32)


def bucket(distance: int, buckets: int, farthest: int, is_bidirectional: bool) -> int:
    """The bucket of one distance, from the key to the right of its query, as T5 has it."""
    first = 0
    if is_bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = math.log(distance / exact) / math.log(farthest / exact) * (buckets - exact)
    return first + min(exact + int(far + 1e-6), buckets - 1)


@pytest.mark.parametrize("is_bidirectional", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (1, 7), (5, 0)])
def test_relative_position_bias(
    xp: Backend, queries: int, keys: int, is_bidirectional: bool
) -> None:
    op = OPS[DOMAIN, "RelativePositionBias"]
    table = drawn(12, 3)
    attributes: dict[str, Any] = {"max_distance": 20, "is_bidirectional": int(is_bidirectional)}
    found = run(xp, op, table, query_length=queries, key_length=keys, **attributes)
    assert found.shape == (1, 3, queries, keys)
    by_head = table.reshape(3, 12)
    for head, q, k in np.ndindex(3, queries, keys):
        wanted = by_head[head, bucket(k - q, 12, 20, is_bidirectional)]
        assert found[0, head, q, k] == wanted


@pytest.mark.parametrize("is_packed", [False, True])
def test_gated_relative_position_bias(xp: Backend, is_packed: bool) -> None:
    batch, length, heads, size, gates = 2, 3, 2, 4, 8
    x, bias = drawn(batch, length, heads * size), drawn(heads * size)
    positions, a = drawn(1, heads, length, length), drawn(1, heads, 1, 1)
    weight, offset = drawn(size, gates), drawn(gates)
    q = (x + bias).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    sums = (q @ weight + offset).reshape(batch, heads, length, 2, gates // 2).sum(axis=-1)
    update, reset = np.split(1 / (1 + np.exp(-sums)), 2, axis=-1)
    expected = (update * (reset * a - 1) + 2) * positions
    inputs = [x, bias, positions, weight, offset, a]
    if is_packed:
        order = np.int32([[0, 1, 2], [3, 4, 5]])
        inputs = [x.reshape(-1, heads * size), *inputs[1:], order]
    found = run(xp, OPS[DOMAIN, "GatedRelativePositionBias"], *inputs, num_heads=heads)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_too_few_buckets(xp: Backend) -> None:
    options: dict[str, Any] = {"query_length": 2, "key_length": 2, "max_distance": 4}
    with pytest.raises(ValueError, match="too few"):
        run(xp, OPS[DOMAIN, "RelativePositionBias"], drawn(1, 3), **options)
