from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.gather_quantized import GatherBlockQuantized
from tests.ops.microsoft.few_bits import (
    normal,
    numbers,
    onnxruntime_with_weights,
    packed,
    scales,
)
from tests.ops.oracle import run

# array_api_strict lacks types of few bits, and float16.
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)
# All rows, counted from both ends, and some beyond them.
INDICES = np.array([[0, 3, -1], [-4, 4, -5]])


def require_same(xp: Backend, inputs: list[Any], **attributes: Any) -> None:
    expected = onnxruntime_with_weights(
        "GatherBlockQuantized", inputs, weights=(0, 2, 3), **attributes
    )
    actual = run(xp, GatherBlockQuantized, *inputs, **attributes)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_packed_bytes(xp: Backend, bits: int, has_zero_points: bool, dtype: Any) -> None:
    columns, blocks = 40, 3
    table, scale = packed(numbers(bits, 4, columns), bits), scales(4, blocks)
    zero = packed(numbers(bits, 4, blocks, seed=1), bits) if has_zero_points else None
    inputs = [table, INDICES.astype(dtype), scale, zero]
    require_same(xp, inputs, bits=bits, block_size=16, quantize_axis=-1)


def test_packed_bytes_of_rank_3(xp: Backend) -> None:
    table, scale = packed(numbers(4, 4, 3, 32), 4), scales(4, 3, 2)
    zero = packed(numbers(4, 4, 3, 2), 4)
    require_same(xp, [table, INDICES, scale, zero], block_size=16, quantize_axis=2)


@WITH_NARROW
@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize(
    ("shape", "gather", "quantize"),
    [
        ((4, 40), 0, 1),
        ((40, 4), 1, 0),
        ((3, 4, 20), 1, 2),
        ((20, 4, 3), 1, 0),
        ((40, 3), 0, 0),
        ((3, 4, 20), -2, -3),
    ],
)
def test_integers_of_4_bits(
    backend: Backend,
    kind: str,
    has_zero_points: bool,
    shape: tuple[int, ...],
    gather: int,
    quantize: int,
) -> None:
    def drawn(shape: list[int], seed: int) -> np.ndarray:
        low = -8 if kind == "int4" else 0
        each = np.random.default_rng(seed).integers(low, low + 16, shape)
        return np.asarray(each.astype(getattr(ml_dtypes, kind)))

    blocks = list(shape)
    blocks[quantize] = -(-blocks[quantize] // 16)
    zero = drawn(blocks, 1) if has_zero_points else None
    inputs = [drawn(list(shape), 0), INDICES, scales(*blocks), zero]
    attributes = {"block_size": 16, "gather_axis": gather, "quantize_axis": quantize}
    require_same(backend, inputs, **attributes)


@WITH_NARROW
@pytest.mark.parametrize("bits", [4, 8])
def test_halves(backend: Backend, bits: int) -> None:
    table, scale = packed(numbers(bits, 4, 40), bits), scales(4, 3, dtype=np.float16)
    require_same(backend, [table, INDICES, scale], bits=bits, block_size=16)


@WITH_NARROW
@pytest.mark.parametrize(
    "kind", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]
)
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1), (1, 1)], ids=str)
def test_floats(backend: Backend, kind: str, shape: tuple[int, int]) -> None:
    table, scale = normal(4, 40).astype(getattr(ml_dtypes, kind)), scales(*shape)
    block_size = 16 if shape[1] == 3 else 0
    require_same(backend, [table, INDICES, scale], block_size=block_size)


@pytest.mark.parametrize("indices", [np.zeros((0,), np.int64), np.array(2), np.zeros((2, 0), int)])
def test_few_indices(xp: Backend, indices: np.ndarray) -> None:
    table, scale = packed(numbers(4, 4, 32), 4), scales(4, 2)
    require_same(xp, [table, indices, scale], block_size=16)


def test_an_empty_table_has_no_index_in_range(xp: Backend) -> None:
    table, scale = np.zeros((0, 16), np.uint8), np.zeros((0, 2), np.float32)
    actual = run(xp, GatherBlockQuantized, table, np.array([0, 1]), scale, block_size=16)
    np.testing.assert_array_equal(actual, np.zeros((2, 32), np.float32))


TABLE = packed(numbers(4, 4, 32), 4)


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({"scales": scales(4, 1)}, {}, r"scales has shape \(4, 1\), but must have shape \(4, 2\)"),
        ({"scales": scales(1, 2)}, {}, r"scales has shape \(1, 2\)"),
        ({"zero_points": np.zeros((4, 2), np.uint8)}, {}, r"must have shape \(4, 1\)"),
        ({"zero_points": np.zeros((4, 1), np.int8)}, {}, "zero_points has type int8"),
        ({}, {"bits": 3}, "bits is 3"),
        ({}, {"block_size": 0}, "block_size is 0"),
        ({}, {"gather_axis": 1}, "gather_axis is 1"),
        ({}, {"quantize_axis": 2}, "axis 2 is out of range"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(
    change: dict[str, np.ndarray], attributes: dict[str, int], message: str
) -> None:
    inputs = {"data": TABLE, "indices": INDICES, "scales": scales(4, 2), "zero_points": None}
    with pytest.raises(ValueError, match=message):
        run(
            HOST,
            GatherBlockQuantized,
            *(inputs | change).values(),
            **{"block_size": 16} | attributes,
        )
