"""Whole models on a GPU: arrays stay there, aliases are aliases, results are those of NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from tests.support.onnx_builders import INT64, model, node, value, weight
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

IDENTITIES = model(
    [node("Identity", [f"x{i}"], [f"x{i + 1}"]) for i in range(100)], ["x0"], ["x100"]
)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=["cupy_backend", "jax_backend"])
def gpu(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.getfixturevalue(request.param)
    return backend


def test_identities_on_cupy_hand_back_the_buffer(cupy_backend: CupyBackend) -> None:
    x: Any = cupy_backend.put(X)
    loaded = sardonyx.load(IDENTITIES, backend=cupy_backend)
    for _ in range(3):
        assert loaded(x).data.ptr == x.data.ptr


def test_identities_on_jax_hand_back_the_buffer(jax_backend: JaxBackend) -> None:
    x: Any = jax_backend.put(X)
    loaded = sardonyx.load(IDENTITIES, backend=jax_backend)
    for _ in range(3):
        assert loaded(x).unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_arrays_stay_on_the_device(gpu: Backend) -> None:
    proto = model(
        [node("Gemm", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"]), node("Shape", ["y"], ["s"])],
        ["x"],
        ["y", value("s", None, INT64)],
        [weight("w", np.ones((3, 4), np.float32))],
    )
    y, s = sardonyx.load(proto, backend=gpu)(gpu.put(X))
    assert gpu.owns(y)
    assert gpu.owns(s)
    np.testing.assert_allclose(gpu.fetch(y), np.maximum(X @ np.ones((3, 4)), 0), rtol=1e-6)
    assert gpu.fetch(s).tolist() == [2, 4]


def test_nobody_can_write_to_weights_through_an_output(cupy_backend: CupyBackend) -> None:
    content = np.ones((30, 30), np.float32)
    proto = model([node("Identity", ["w"], ["y"])], [], ["y"], [weight("w", content)])
    loaded = sardonyx.load(proto, backend=cupy_backend)
    found = loaded()
    found[...] = 7
    np.testing.assert_array_equal(loaded(), content)


@pytest.mark.parametrize("library", ["cupy", "numpy"])
def test_nobody_can_write_to_weights_through_a_view(
    cupy_backend: CupyBackend, library: str
) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[2, 2] x) => (float[2, 2] y, float[2, 2] turned, float[4] flat, float[1, 2] row)
    <float[2, 2] w = {1, 2, 3, 4}, int64[1] one = {-1}, int64[1] zero = {0}, int64[1] two = {2}> {
        turned = Transpose<perm=[1, 0]>(w) flat = Reshape(w, one) row = Slice(w, one, two, zero)
        a = MatMul(x, w) b = MatMul(a, turned) c = Softmax(b) y = MatMul(c, w) }"""
    loaded = sardonyx.load(parser.parse_model(text), backend=cupy_backend)
    reference = sardonyx.load(parser.parse_model(text), backend="numpy")
    x = np.array([[1, -2], [0.5, 3]], np.float32)
    for _ in range(4):
        found = loaded(cupy_backend.put(x) if library == "cupy" else x)
        for one, wanted in zip(found, reference(x), strict=True):
            np.testing.assert_allclose(np.asarray(cupy_backend.fetch(one)), wanted, rtol=1e-5)
            if library == "cupy" or one.flags.writeable:
                one[...] = 7


@pytest.mark.parametrize("name", NAMES)
def test_exporters_models(name: str, gpu: Backend) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=gpu)
    for _ in range(2):
        for feeds, expected in recorded_calls(name):
            for found, wanted in zip(
                loaded.run(list(expected), feeds), expected.values(), strict=True
            ):
                np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
