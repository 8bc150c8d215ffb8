"""CuPy at the precisions that allow less than float32: which library rounds to which type."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.numpy import HOST
from tests.support.onnx_builders import model, node, value, weight

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(0)
A, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((65, 128), (128, 33)))
X, FILTERS = (RNG.normal(size=s).astype(np.float32) for s in ((1, 64, 9, 9), (8, 64, 3, 3)))
LAYOUT: dict[str, Any] = {
    "strides": (1, 1),
    "pads": ((1, 1), (1, 1)),
    "dilations": (1, 1),
    "groups": 1,
}
# The error of a sum of products of rounded factors, as a fraction of the sum of their sizes. A
# precision allows the most, and libraries choose. The least shows that they were asked, of products
# for which they take tensor cores.
LEAST = {"exact": 0.0, "tf32": 1e-5, "bfloat16": 1e-4}
MOST = {"exact": 1e-6, "tf32": 1e-3, "bfloat16": 8e-3}
KINDS = {
    "highest": "exact",
    "default": "exact",
    "high": "tf32",
    "tensorfloat32": "tf32",
    "bfloat16": "bfloat16",
}


def assert_rounded(
    found: Any, exact: Any, scale: Any, kind: str, least: float | None = None
) -> None:
    error = np.max(np.abs(found - exact) / scale)
    assert (LEAST[kind] if least is None else least) <= error < MOST[kind], (kind, error)


def assert_product(found: Any, kind: str, least: float | None = None) -> None:
    exact = A.astype(np.float64) @ B
    assert_rounded(found, exact, np.abs(A).astype(np.float64) @ np.abs(B), kind, least)


def convolved(backend: Any, x: Any, filters: Any) -> Any:
    with backend.scope():
        arrays = backend.put(x), backend.put(filters)
        return np.asarray(backend.fetch(backend.convolution(*arrays, **LAYOUT)))


def by_matmul(backend: CupyBackend) -> Any:
    return backend.fetch(backend.matmul(backend.put(A), backend.put(B)))


def by_tensordot(backend: CupyBackend) -> Any:
    return backend.fetch(backend.tensordot(backend.put(A), backend.put(B), axes=1))


def by_vecdot(backend: CupyBackend) -> Any:
    rows, columns = backend.put(A[:, None, :]), backend.put(np.ascontiguousarray(B.T[None]))
    return backend.fetch(backend.vecdot(rows, columns))


@pytest.mark.parametrize("precision", KINDS)
@pytest.mark.parametrize("multiply", [by_matmul, by_tensordot, by_vecdot])
def test_products(
    cupy_backend: CupyBackend, multiply: Callable[[Any], Any], precision: str
) -> None:
    with cupy_backend.scope():
        found = multiply(cupy_backend.with_precision(precision))
    # The kernels of cuBLAS for vectors, which no tensor core makes faster, round no factors.
    assert_product(found, KINDS[precision], 0 if multiply is by_vecdot else None)


@pytest.mark.parametrize("precision", KINDS)
@pytest.mark.parametrize("nodes", ["MatMul", "Gemm with ReLU"])
def test_models(cupy_backend: CupyBackend, precision: str, nodes: str) -> None:
    graph, more = [node("MatMul", ["a", "b"], ["y"])], []
    if nodes != "MatMul":
        # A bias that keeps all results from zero, so that ReLU changes none.
        graph = [node("Gemm", ["a", "b", "c"], ["t"]), node("Relu", ["t"], ["y"])]
        more = [weight("c", np.full(33, 1024, np.float32))]
    proto = model(graph, [value("a", [65, 128])], ["y"], [weight("b", B), *more])
    loaded = sardonyx.load(proto, backend="cupy", precision=precision)
    again = pickle.loads(pickle.dumps(loaded))
    for _ in range(4):
        for each in (loaded, again):
            found = each(A).astype(np.float64)
            scale = np.abs(A).astype(np.float64) @ np.abs(B)
            exact = A.astype(np.float64) @ B
            if more:
                # The sums are of numbers near 1024, which have fewer digits after the point.
                np.testing.assert_allclose(found, exact + 1024, rtol=2e-3)
                off = np.abs(found - exact - 1024).max()
                assert (off < 5e-4) == (KINDS[precision] == "exact"), off
            else:
                assert_rounded(found, exact, scale, KINDS[precision])


def test_two_models_of_one_thread_have_a_precision_each(cupy_backend: CupyBackend) -> None:
    proto = model([node("MatMul", ["a", "b"], ["y"])], ["a", "b"], ["y"])
    models = {word: sardonyx.load(proto, backend="cupy", precision=word) for word in KINDS}
    for _ in range(4):
        for word, loaded in models.items():
            assert_product(loaded(A, B), KINDS[word])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types_are_multiplied_as_they_are(cupy_backend: CupyBackend, dtype: Any) -> None:
    a, b = A.astype(dtype), B.astype(dtype)
    with cupy_backend.scope():
        found = [
            cupy_backend.fetch(xp.matmul(xp.put(a), xp.put(b)))
            for xp in (cupy_backend, *map(cupy_backend.with_precision, ("high", "bfloat16")))
        ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.astype(np.float64), found[0].astype(np.float64))


@pytest.mark.parametrize("precision", KINDS)
def test_convolutions_without_cudnn(cupy_backend: CupyBackend, precision: str) -> None:
    backend = cupy_backend.with_precision(precision)
    backend.uses_cudnn = False
    scale, exact = (convolved(HOST, *each) for each in ((abs(X), abs(FILTERS)), (X, FILTERS)))
    kind = KINDS[precision]
    # Where bfloat16 is allowed, cuBLAS may still take a kernel for TF32, as on an H200 here.
    least = min(LEAST[kind], LEAST["tf32"])
    assert_rounded(convolved(backend, X, FILTERS), exact, scale, kind, least)


@pytest.mark.parametrize("precision", KINDS)
def test_convolutions_by_cudnn(cupy_backend: CupyBackend, with_cudnn: None, precision: str) -> None:
    """Kernels for TF32 are the least exact that cuDNN has for float32."""
    found = convolved(cupy_backend.with_precision(precision), X, FILTERS)
    wide = X.astype(np.float64), FILTERS.astype(np.float64)
    scale, exact = convolved(HOST, *map(np.abs, wide)), convolved(HOST, *wide)
    kind = "exact" if KINDS[precision] == "exact" else "tf32"
    assert_rounded(found, exact, scale, kind)
    # The exact plans are still there for other models.
    assert_rounded(convolved(cupy_backend, X, FILTERS), exact, scale, "exact")
