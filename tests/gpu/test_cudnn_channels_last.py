"""Convolutions of 16 bits between transpositions: cuDNN reads and writes channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper, parser

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.ops.fused_products import convolution_of_channels_last
from tests.gpu.cudnn_plans import BFLOAT16, FLOATS, HALF, fused, on_host, plans, unexpected

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("with_cudnn")]

# As TensorFlow's exporter writes two layers: the second one with a sum and padding of two widths.
LAYERS = """<ir_version: 10, opset_import: ["" : 22]>
g ({type}[1,8,8,4] x) => ({type}[1,4,4,4] y, {type}[1,8,8,4] z) {{
    t = Transpose<perm=[0,3,1,2]>(x)
    a = Conv<pads=[1,1,1,1]>(t, w, b)
    r = Relu(a)
    z = Transpose<perm=[0,2,3,1]>(r)
    s = Transpose<perm=[0,3,1,2]>(z)
    c = Conv<pads=[1,1,1,1]>(s, v, b)
    sum = Add(c, t)
    q = Relu(sum)
    e = Conv<pads={pads}, strides=[2,2]>(q, u, b)
    y = Transpose<perm=[0,2,3,1]>(e)
}}"""
NAMES = {HALF: "float16", BFLOAT16: "bfloat16", np.dtype(np.float32): "float"}


def layers(dtype: np.dtype[Any], pads: str = "[0,0,1,1]") -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    model = parser.parse_model(LAYERS.format(type=NAMES[dtype], pads=pads))
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    for name, shape in {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "u": (4, 4, 3, 3), "b": (4,)}.items():
        value = (rng.integers(-8, 9, shape) / 32).astype(dtype)
        model.graph.initializer.append(
            helper.make_tensor(name, kind, shape, value.tobytes(), raw=True)
        )
    return model, {"x": (rng.integers(-8, 9, (1, 8, 8, 4)) / 8).astype(dtype)}


def called(loaded: Any, backend: CupyBackend, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The results after the graph was captured, in row-major order."""
    inputs = {name: backend.put(array) for name, array in feeds.items()}
    for _ in range(4):
        results = loaded(**inputs)
    assert all(results[name].flags.c_contiguous for name in ("y", "z"))
    return [np.asarray(backend.fetch(results[name])).astype(np.float64) for name in ("y", "z")]


def on_numpy(model: Any, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    results = sardonyx.load(model, backend="numpy")(**feeds)
    return [np.asarray(results[name]).astype(np.float64) for name in ("y", "z")]


@pytest.mark.parametrize("dtype", [HALF, BFLOAT16], ids=str)
@pytest.mark.parametrize(("pads", "kernels"), [("[1,1,1,1]", 0), ("[0,0,1,1]", 1)])
def test_transpositions_cost_nothing(
    cupy_backend: CupyBackend, pads: str, kernels: int, dtype: np.dtype[Any]
) -> None:
    counts = pytest.importorskip("emulated_cuda.counts")
    model, feeds = layers(dtype, pads)
    loaded = sardonyx.load(model, backend=cupy_backend)
    error = 0.002 if dtype == HALF else 0.02
    for found, expected in zip(
        called(loaded, cupy_backend, feeds), on_numpy(model, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=error, atol=4 * error)
    assert unexpected(loaded.stats().unfused) == []
    assert [key.is_channels_last for key in plans(cupy_backend)].count(True) >= 3
    if counts.available():
        inputs = {name: cupy_backend.put(array) for name, array in feeds.items()}
        with counts.counted() as cost:
            loaded(**inputs)
        assert (cost.kernels, cost.library_calls) == (kernels, 3)


def test_float32_keeps_its_order(cupy_backend: CupyBackend) -> None:
    model, feeds = layers(np.dtype(np.float32))
    loaded = sardonyx.load(model, backend=cupy_backend)
    for found, expected in zip(
        called(loaded, cupy_backend, feeds), on_numpy(model, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not any(key.is_channels_last for key in plans(cupy_backend))


def test_without_a_plan_the_order_stays(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sardonyx.backends.cupy.cudnn.convolution import ConvolutionKey  # noqa: PLC0415

    build = ConvolutionKey.build

    def refused(self: ConvolutionKey, cudnn: Any, handle: Any) -> Any:
        if self.is_channels_last:
            raise ValueError("no engine")
        return build(self, cudnn, handle)

    monkeypatch.setattr(ConvolutionKey, "build", refused)
    model, feeds = layers(HALF)
    loaded = sardonyx.load(model, backend=cupy_backend)
    for found, expected in zip(
        called(loaded, cupy_backend, feeds), on_numpy(model, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0.002, atol=0.008)
    assert unexpected(loaded.stats().unfused) == []


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1)], ids=str)
def test_arrays_with_channels_last(
    cupy_backend: CupyBackend, rank: int, groups: int, pads: Any, dtype: np.dtype[Any]
) -> None:
    rng = np.random.default_rng(rank)
    layout: dict[str, Any] = {
        "strides": (2, 1, 1)[:rank],
        "pads": (pads,) * rank,
        "dilations": (1, 2, 1)[:rank],
        "groups": groups,
    }
    epilogue = Epilogue(has_bias=True, activation=Activation("relu"), addend="before")
    shapes = [(2, *(7, 6, 5)[:rank], 2 * groups), (3 * groups, *(3, 2, 1)[:rank], 2), (3 * groups,)]
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    blank = on_host(
        lambda xp, x, w: [xp.convolution(xp.moveaxis(x, -1, 1), xp.moveaxis(w, -1, 1), **layout)],
        *arrays[:2],
    )
    arrays.append(rng.integers(-9, 10, np.moveaxis(blank, 1, -1).shape).astype(dtype))

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_of_channels_last(xp, *arrays, epilogue=epilogue, **layout)]

    found, reasons = fused(cupy_backend, convolved, *arrays)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, *arrays))
    assert unexpected(reasons) == []
    assert any(key.is_channels_last for key in plans(cupy_backend))
    specs = [Spec(array.shape, array.dtype) for array in arrays]
    is_chosen = cupy_backend.convolves_channels_last(
        specs[0], specs[1], specs[2:], epilogue, **layout
    )
    assert is_chosen == (dtype.itemsize == 2)
