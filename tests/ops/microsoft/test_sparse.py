from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.sparse import SparseToDenseMatMul, TorchEmbedding
from tests.ops.microsoft.few_bits import normal
from tests.ops.oracle import run
from tests.support import onnx_builders as builders


def sparse() -> np.ndarray:
    A = np.zeros((3, 4), np.float32)
    A[[0, 1, 2], [1, 0, 3]] = [1, -2, 3]
    return A


def product_model(**attributes: Any) -> bytes:
    """A model without sizes: onnxruntime infers shapes as if nothing was transposed."""
    node = builders.node(
        "SparseToDenseMatMul", ["A", "B"], ["Y"], domain="com.microsoft", **attributes
    )
    A = helper.make_sparse_tensor_value_info("A", builders.FLOAT, ["i", "j"])
    inputs = [A, builders.value("B", ["k", "l"])]
    proto = builders.model([node], inputs, [ValueInfoProto(name="Y")], com_microsoft=1)
    return bytes(proto.SerializeToString())


def onnxruntime_product(source: bytes, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    places = np.argwhere(A).astype(np.int64)
    tensor = onnxruntime.SparseTensor.sparse_coo_from_numpy(
        np.array(A.shape, np.int64),
        A[tuple(places.T)],
        places.reshape(-1),
        onnxruntime.OrtDevice.make("cpu", 0),
    )
    feeds = {
        "A": onnxruntime.OrtValue.ort_value_from_sparse_tensor(tensor),
        "B": onnxruntime.OrtValue.ortvalue_from_numpy(B),
    }
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return np.asarray(session.run_with_ort_values(["Y"], feeds)[0].numpy())


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((4, 2), {}),
        ((4, 2), {"alpha": 0.5}),
        ((2, 4), {"transB": 1}),
        ((3, 2), {"transA": 1}),
        ((2, 3), {"transA": 1, "transB": 1, "alpha": 2.0}),
    ],
)
def test_products_with_a_sparse_matrix(
    xp: Backend, shape: tuple[int, int], attributes: dict[str, Any]
) -> None:
    A, B = sparse(), normal(*shape)
    source = product_model(**attributes)
    expected = onnxruntime_product(source, A, B)
    actual = run(xp, SparseToDenseMatMul, A, B, **attributes)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    loaded = sardonyx.load(source, backend=xp)(A, B)
    np.testing.assert_allclose(np.asarray(loaded), expected, rtol=1e-5, atol=1e-6)


def test_products_of_integers_and_of_stacks(xp: Backend) -> None:
    A = sparse().astype(np.int64)
    B = np.arange(16).reshape(2, 4, 2)
    actual = run(xp, SparseToDenseMatMul, A, B, alpha=2.0)
    np.testing.assert_array_equal(actual, 2 * A @ B)


def test_a_vector_is_no_factor() -> None:
    with pytest.raises(ValueError, match="A must be a matrix"):
        run(HOST, SparseToDenseMatMul, sparse(), normal(4))


@pytest.mark.parametrize("others", [(), (np.array(2),), (np.array(2), np.array(True))], ids=len)
def test_rows_of_an_embedding(xp: Backend, others: tuple[np.ndarray, ...]) -> None:
    weight, indices = normal(5, 3), np.array([[0, 4], [2, 2]])
    actual = run(xp, TorchEmbedding, weight, indices, *others)
    np.testing.assert_array_equal(actual, weight[indices])
