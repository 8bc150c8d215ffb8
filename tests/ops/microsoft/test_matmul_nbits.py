from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.few_bits import unpacked
from sardonyx.ops.microsoft.matmul_nbits import MatMulNBits
from tests.ops.microsoft.few_bits import normal, numbers, packed, scales
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
# array_api_strict lacks float16.
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)


@dataclass(frozen=True)
class Case:
    """One node with drawn inputs, and the weight that they stand for."""

    bits: int
    K: int
    N: int
    block_size: int
    zero: str = ""  # The kind of zero points: none, "packed", or "float".
    groups: str = ""  # The kind of g_idx: none, "blocks" in another order, or "each" input's own.
    dtype: Any = np.float32

    @property
    def blocks(self) -> int:
        return -(-self.K // self.block_size)

    @property
    def attributes(self) -> dict[str, int]:
        return {"K": self.K, "N": self.N, "bits": self.bits, "block_size": self.block_size}

    def drawn(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        """The inputs from B to g_idx, and the weight (K, N) in float64."""
        table = numbers(self.bits, self.N, self.blocks, self.block_size)
        scale = scales(self.N, self.blocks, dtype=self.dtype)
        zero_points: np.ndarray | None = None
        zero = np.full((self.N, self.blocks), 1 << (self.bits - 1), np.float64)
        if self.zero == "packed":
            zero = numbers(self.bits, self.N, self.blocks)
            zero_points = packed(zero, self.bits)
        elif self.zero == "float":
            zero_points = zero = normal(self.N, self.blocks, dtype=self.dtype) * 3
        group = np.arange(self.K, dtype=np.int32) // self.block_size
        if self.groups == "blocks":
            group = np.random.default_rng(0).permutation(self.blocks).astype(np.int32)[group]
        elif self.groups == "each":
            group = np.random.default_rng(0).permutation(group)
        flat = table.reshape(self.N, -1)[:, : self.K].astype(np.float64)
        weight = (flat - zero.astype(np.float64)[:, group]) * scale.astype(np.float64)[:, group]
        inputs = [packed(table, self.bits), scale, zero_points, group if self.groups else None]
        return inputs, weight.T


CASES = [
    Case(bits, K, N, size, zero)
    for bits in (2, 4, 8)
    for K, N, size in ((32, 8, 16), (70, 5, 32), (256, 3, 128), (16, 1, 256))
    for zero in ("", "packed")
] + [
    Case(4, 70, 5, 32, "float"),
    Case(4, 96, 7, 32, "", groups="blocks"),
    Case(4, 70, 5, 16, "float", groups="blocks"),
]
HALVES = [
    Case(4, 70, 5, 32, "", dtype=np.float16),
    Case(4, 70, 5, 32, "packed", dtype=np.float16),
    Case(4, 70, 5, 32, "float", dtype=np.float16),
    Case(8, 70, 5, 32, "packed", dtype=np.float16),
]


def label(case: Case) -> str:
    return f"{case.bits}-{case.K}x{case.N}-{case.block_size}-{case.zero}-{case.groups}"


@pytest.mark.parametrize("case", CASES, ids=label)
def test_products_are_those_of_onnxruntime(xp: Backend, case: Case) -> None:
    require_products(xp, case)


@WITH_NARROW
@pytest.mark.parametrize("case", HALVES, ids=label)
def test_products_of_halves_are_those_of_onnxruntime(backend: Backend, case: Case) -> None:
    require_products(backend, case)


def require_products(xp: Backend, case: Case) -> None:
    """The products are those of onnxruntime, and those of the weight in float64."""
    weights, weight = case.drawn()
    A, bias = normal(2, 3, case.K, dtype=case.dtype), normal(case.N, dtype=case.dtype)
    inputs = [A, *weights, bias]
    expected = onnxruntime_run("MatMulNBits", *inputs, opset=1, domain=DOMAIN, **case.attributes)
    actual = run(xp, MatMulNBits, *inputs, **case.attributes)
    assert actual.dtype == expected.dtype == case.dtype
    error = 2e-6 if case.dtype is np.float32 else 2e-3
    size = np.abs(A.astype(np.float64)) @ np.abs(weight) + np.abs(bias)
    assert np.all(np.abs(actual - expected.astype(np.float64)) <= error * size)
    plain = A.astype(np.float64) @ weight + bias
    assert np.all(np.abs(actual - plain) <= error * size)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("zero", ["", "packed"])
def test_all_sizes_of_numbers(xp: Backend, bits: int, zero: str) -> None:
    case = Case(bits, 50, 4, 16, zero)
    weights, weight = case.drawn()
    A = normal(3, case.K)
    actual = run(xp, MatMulNBits, A, *weights, **case.attributes)
    np.testing.assert_allclose(actual, A @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 21])
def test_unpacked_numbers(xp: Backend, bits: int, count: int) -> None:
    table = numbers(bits, 3, count)
    with xp.scope():
        actual = xp.fetch(unpacked(xp, xp.put(packed(table, bits)), bits, count))
    np.testing.assert_array_equal(actual, table)


@pytest.mark.parametrize("shape", [(70,), (1, 70), (0, 70), (2, 0, 70), (2, 1, 3, 70)], ids=str)
def test_shapes_of_activations(xp: Backend, shape: tuple[int, ...]) -> None:
    case = Case(4, 70, 5, 32, "packed")
    weights, _ = case.drawn()
    A = normal(*shape)
    expected = onnxruntime_run(
        "MatMulNBits", A, *weights, opset=1, domain=DOMAIN, **case.attributes
    )
    actual = run(xp, MatMulNBits, A, *weights, **case.attributes)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accuracy_level", [0, 1, 2, 3, 4])
def test_flat_scales_and_every_accuracy(xp: Backend, accuracy_level: int) -> None:
    case = Case(4, 70, 5, 32, "packed")
    (B, scale, zero, _), weight = case.drawn()
    A = normal(3, case.K)
    flat = (A, B, scale.reshape(-1), zero.reshape(-1))
    actual = run(xp, MatMulNBits, *flat, **case.attributes, accuracy_level=accuracy_level)
    np.testing.assert_allclose(actual, A @ weight, rtol=1e-4, atol=1e-4)
    trailing = (A, B, scale[..., None], zero[..., None])
    np.testing.assert_array_equal(run(xp, MatMulNBits, *trailing, **case.attributes), actual)


def test_each_input_has_its_own_group(xp: Backend) -> None:
    # onnxruntime takes the groups of the first 8 inputs of a block for all of the block, and the
    # zero point 8 for packed ones.
    case = Case(4, 70, 5, 16, "packed", groups="each")
    (B, scale, zero, group), weight = case.drawn()
    A, padded = normal(3, case.K), np.concatenate([group, np.zeros(10, np.int32)])
    for each in (group, padded):
        actual = run(xp, MatMulNBits, A, B, scale, zero, each, **case.attributes)
        np.testing.assert_allclose(actual, A @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({"B": np.zeros((5, 3, 15), np.uint8)}, {}, r"B has shape \(5, 3, 15\)"),
        ({"B": np.zeros((5, 3, 16), np.int8)}, {}, "B has type int8, but must be uint8"),
        ({"scales": np.ones((3, 5), np.float32)}, {}, r"scales has shape \(3, 5\)"),
        ({"scales": np.ones((5, 3), np.float16)}, {}, "A has type float32"),
        ({"zero_points": np.zeros((5, 3), np.uint8)}, {}, r"must have shape \(5, 2\)"),
        ({"zero_points": np.zeros((5, 2), np.int8)}, {}, "zero_points has type int8"),
        ({"g_idx": np.zeros(7, np.int32)}, {}, r"g_idx has shape \(7,\)"),
        ({"g_idx": np.full(70, 3, np.int32)}, {}, "'g_idx' holds 3"),
        ({"bias": np.zeros(4, np.float32)}, {}, "bias has shape"),
        ({"A": np.zeros((2, 71), np.float32)}, {}, "cannot be multiplied"),
        ({}, {"bits": 9}, "bits is 9"),
        ({}, {"block_size": 24}, "block_size is 24"),
        ({}, {"block_size": 8}, "block_size is 8"),
        ({}, {"weight_prepacked": 1}, "weight_prepacked is 1"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(
    change: dict[str, np.ndarray], attributes: dict[str, int], message: str
) -> None:
    case = Case(4, 70, 5, 32, "packed")
    (B, scale, zero, _), _ = case.drawn()
    names = ("A", "B", "scales", "zero_points", "g_idx", "bias")
    inputs = dict(zip(names, (normal(2, 70), B, scale, zero, None, None), strict=True)) | change
    with pytest.raises(ValueError, match=message):
        run(HOST, MatMulNBits, *inputs.values(), **case.attributes | attributes)
