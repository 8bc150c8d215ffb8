"""Products by cuBLASLt on CuPy: 8-bit integers, and products with what follows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from tests.support.onnx_builders import model, node

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = [np.dtype(np.float16), BFLOAT16]
FLOATS = [*NARROW, np.dtype(np.float32)]
BYTES = [np.dtype(np.int8), np.dtype(np.uint8)]


@pytest.fixture
def xp(cupy_backend: CupyBackend, caplog: pytest.LogCaptureFixture) -> Iterator[CupyBackend]:
    with cupy_backend.scope():
        yield cupy_backend
    assert not caplog.records, "cuBLASLt refused something"


# -- integers -------------------------------------------------------------------------------------


def integers(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)
    x.reshape(-1)[:2] = limits.min
    return x


def assert_exact(xp: CupyBackend, a: Any, b: Any) -> None:
    found = cupy.asnumpy(xp.integer_matmul(cupy.asarray(a), cupy.asarray(b)))
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("b", BYTES, ids=str)
@pytest.mark.parametrize("a", BYTES, ids=str)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((16, 32), (32, 16)),
        ((1, 1), (1, 1)),
        ((2, 3, 17), (17, 33)),
        ((3, 17), (2, 17, 33)),
        ((4, 3, 5, 18), (3, 18, 7)),
        ((2, 1, 3, 4), (5, 4, 16)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
    ],
    ids=str,
)
def test_integers(
    xp: CupyBackend, left: Any, right: Any, a: np.dtype[Any], b: np.dtype[Any]
) -> None:
    assert_exact(xp, integers(left, a, 0), integers(right, b, 1))


def test_long_sums_of_integers(xp: CupyBackend) -> None:
    for length in (2**17 - 1, 2**17 + 5):
        a = np.full((1, length), -128, np.int8)
        assert_exact(xp, a, a.T)


def test_views_of_integers(xp: CupyBackend) -> None:
    a, b = integers((6, 32), BYTES[0], 0), integers((16, 32), BYTES[0], 1)
    x, y = cupy.asarray(a)[::2, ::-1], cupy.asarray(b).T
    expected = a[::2, ::-1].astype(np.int32) @ b.T.astype(np.int32)
    np.testing.assert_array_equal(cupy.asnumpy(xp.integer_matmul(x, y)), expected)


def test_integers_at_any_address(xp: CupyBackend) -> None:
    a, b = integers((16, 32), BYTES[0], 0), integers((32, 16), BYTES[0], 1)
    memory = cupy.empty(1024, np.int8)
    for place in (1, 2, 4, 8):
        x = memory[place:][: a.size].reshape(a.shape)
        x[...] = cupy.asarray(a)
        found = cupy.asnumpy(xp.integer_matmul(x, cupy.asarray(b)))
        np.testing.assert_array_equal(found, a.astype("i") @ b.astype("i"))


def test_integers_whose_sizes_are_units_are_not_copied(xp: CupyBackend) -> None:
    counts = device_counts()
    x, y = cupy.ones((32, 48), np.int8), cupy.ones((16, 48), np.int8).T
    xp.integer_matmul(x, y)
    with counts.counted() as cost:
        xp.integer_matmul(x, y)
    assert (cost.library_calls, cost.kernels) == (1, 0)


def test_refused_integers_are_multiplied_as_floats(
    device: CupyBackend, caplog: pytest.LogCaptureFixture
) -> None:
    from sardonyx.backends.cupy.cublas import CublasError  # noqa: PLC0415
    from sardonyx.backends.cupy.refusals import note  # noqa: PLC0415

    a, b = integers((5, 64), BYTES[0], 0), integers((80, 64), BYTES[0], 1)
    x, y = cupy.asarray(a), cupy.asarray(b).T
    note(CublasError("cublasLtMatmul", 15), x, y)
    assert "cublasLtMatmul returned NOT_SUPPORTED" in caplog.text
    counts = device_counts()
    with counts.counted() as cost:
        found = device.integer_matmul(x, y)
    assert cost.kernels > 0
    np.testing.assert_array_equal(cupy.asnumpy(found), a.astype("i") @ b.T.astype("i"))


def device_counts() -> Any:
    counts = pytest.importorskip("emulated_cuda.counts", reason="only an emulated device counts")
    if not counts.available():
        pytest.skip("only the emulated device counts")
    return counts


# -- epilogues ------------------------------------------------------------------------------------


FUNCTIONS: dict[str | None, Any] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def epilogue_of(function: Any, *, has_bias: bool = True) -> Epilogue:
    return Epilogue(has_bias=has_bias, activation=Activation(function) if function else None)


def drawn(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_follows(found: Any, a: Any, b: Any, bias: Any, function: Any) -> None:
    result = cupy.asnumpy(found)
    with np.errstate(all="ignore"):  # which warnings NaN and infinities give is up to NumPy's BLAS
        sums = a.astype("d") @ b.astype("d") + (0 if bias is None else bias.astype("d"))
        expected = FUNCTIONS[function](sums)
    assert (result.dtype, result.shape) == (a.dtype, expected.shape)
    unit = float(ml_dtypes.finfo(a.dtype).eps)
    np.testing.assert_allclose(result.astype("d"), expected, rtol=2 * unit, atol=8 * unit)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 1, 4)], ids=str)
def test_epilogues(xp: CupyBackend, function: Any, shape: Any, dtype: np.dtype[Any]) -> None:
    a, b, bias = drawn(shape, dtype, 0), drawn((4, 5), dtype, 1), drawn((5,), dtype, 2)
    x, y, z = map(cupy.asarray, (a, b, bias))
    epilogue = epilogue_of(function)
    for _ in range(2):
        assert_follows(xp.matmul_and_more(x, y, z, epilogue=epilogue), a, b, bias, function)
    if function:
        epilogue = epilogue_of(function, has_bias=False)
        assert_follows(xp.matmul_and_more(x, y, epilogue=epilogue), a, b, None, function)
    # Views: the left side, the transposed right side, and the bias.
    x, y, z = cupy.asarray(a)[..., ::-1], cupy.asarray(b[::-1].T.copy()).T, cupy.repeat(z, 2)[::2]
    found = xp.matmul_and_more(x, y, z, epilogue=epilogue_of(function))
    assert_follows(found, a, b, bias, function)


def test_relu_passes_nan(xp: CupyBackend) -> None:
    a = drawn((3, 4), FLOATS[2], 0)
    a[0, 0], a[1, 0] = np.nan, -np.inf
    b, bias = drawn((4, 5), FLOATS[2], 1), drawn((5,), FLOATS[2], 2)
    found = xp.matmul_and_more(*map(cupy.asarray, (a, b, bias)), epilogue=epilogue_of("relu"))
    assert_follows(found, a, b, bias, "relu")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_refused_epilogues_are_computed_step_by_step(
    device: CupyBackend,
    caplog: pytest.LogCaptureFixture,
    function: Any,
    dtype: np.dtype[Any],
) -> None:
    from sardonyx.backends.cupy.cublas import CublasError  # noqa: PLC0415
    from sardonyx.backends.cupy.refusals import note  # noqa: PLC0415

    a, b, bias = drawn((7, 4), dtype, 0), drawn((4, 6), dtype, 1), drawn((6,), dtype, 2)
    x, y, z = map(cupy.asarray, (a, b, bias))
    note(CublasError("cublasLtMatmul", 15), x, y, function or "none", True, "highest")
    assert caplog.records
    found = device.matmul_and_more(x, y, z, epilogue=epilogue_of(function))
    unit = float(ml_dtypes.finfo(dtype).eps)
    expected = FUNCTIONS[function](a.astype("d") @ b.astype("d") + bias.astype("d"))
    np.testing.assert_allclose(cupy.asnumpy(found).astype("d"), expected, 8 * unit, 8 * unit)


def test_operands_at_any_address(xp: CupyBackend) -> None:
    dtype = np.dtype(np.float16)
    a, b, bias = drawn((4, 4), dtype, 0), drawn((4, 4), dtype, 1), drawn((4,), dtype, 2)
    for places in ((0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 1), (8, 4, 2)):
        memory = cupy.empty(256, dtype)
        moved = []
        for i, (x, place) in enumerate(zip((a, b, bias), places, strict=True)):
            view = memory[64 * i + place :][: x.size].reshape(x.shape)
            view[...] = cupy.asarray(x)
            moved.append(view)
        found = xp.matmul_and_more(*moved, epilogue=epilogue_of("relu"))
        assert_follows(found, a, b, bias, "relu")


def test_epilogues_into_an_array(xp: CupyBackend) -> None:
    dtype = np.dtype(np.float32)
    a, b, bias = drawn((4, 4), dtype, 0), drawn((4, 4), dtype, 1), drawn((4,), dtype, 2)
    x, y, z = map(cupy.asarray, (a, b, bias))
    for out in (cupy.full((4, 4), np.nan, dtype), x):
        assert xp.matmul_and_more(x, y, z, epilogue=epilogue_of("relu"), out=out) is out
        assert_follows(out, a, b, bias, "relu")
    with pytest.raises(ValueError, match="`out` is"):
        xp.matmul_and_more(x, y, z, epilogue=epilogue_of("relu"), out=cupy.empty(3))


def test_epilogues_in_a_graph(xp: CupyBackend) -> None:
    from sardonyx.backends.cupy.cublas_handles import workspace_of_capture  # noqa: PLC0415

    dtype = np.dtype(np.float32)
    b, bias = drawn((4, 5), dtype, 1), drawn((5,), dtype, 2)
    x, y, z = cupy.empty((3, 4), dtype), cupy.asarray(b), cupy.asarray(bias)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, workspace_of_capture() as kept:
        # What a first product does once for its layout is no part of the graph.
        xp.matmul_and_more(x, y, z, epilogue=epilogue_of("relu"))
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        found = xp.matmul_and_more(x, y, z, epilogue=epilogue_of("relu"))
        graph = stream.end_capture()
    assert kept.mem.size > 0
    for seed in range(2):
        a = drawn((3, 4), dtype, seed)
        x.set(a)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert_follows(found, a, b, bias, "relu")


# -- models ---------------------------------------------------------------------------------------


def cost_of(proto: Any, backend: CupyBackend, feeds: dict[str, Any]) -> tuple[Any, Any]:
    counts = device_counts()
    loaded = sardonyx.load(proto, backend=backend)
    placed = {name: backend.put(x) for name, x in feeds.items()}
    for _ in range(2):
        result = loaded(**placed)
    with counts.counted() as cost:
        result = loaded(**placed)
    assert not loaded.stats().unfused
    return cost, backend.fetch(result)


def dense(activation: Any, dtype: Any = np.float32) -> Any:
    from onnx import TensorProto  # noqa: PLC0415
    from onnx.helper import np_dtype_to_tensor_dtype  # noqa: PLC0415
    from onnx.numpy_helper import from_array  # noqa: PLC0415

    from tests.support.onnx_builders import value  # noqa: PLC0415

    number = np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert number != TensorProto.UNDEFINED
    b, bias = drawn((8, 16), np.dtype(dtype), 1), drawn((16,), np.dtype(dtype), 2)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"])]
    nodes += [activation] if activation else [node("Identity", ["s"], ["y"])]
    weights = [from_array(b, "w"), from_array(bias, "b")]
    x, y = value("x", (4, 8), number), value("y", None, number)
    return model(nodes, [x], [y], weights, opset=20), b, bias


@pytest.mark.parametrize("function", ["relu", None])
def test_a_dense_layer_is_one_call(device: CupyBackend, function: Any) -> None:
    activation = node("Relu", ["s"], ["y"]) if function else None
    proto, b, bias = dense(activation)
    a = drawn((4, 8), np.dtype(np.float32), 0)
    cost, found = cost_of(proto, device, {"x": a})
    assert (cost.library_calls, cost.kernels) == (1, 0)
    assert_follows(found, a, b, bias, function)


def test_the_gelu_of_float32_is_the_graphs_own_kernel(device: CupyBackend) -> None:
    proto, b, bias = dense(node("Gelu", ["s"], ["y"], approximate="tanh"))
    a = drawn((4, 8), np.dtype(np.float32), 0)
    cost, found = cost_of(proto, device, {"x": a})
    assert (cost.library_calls, cost.kernels) == (1, 1)
    assert_follows(found, a, b, bias, "gelu_tanh")


def test_the_gelu_of_float16_is_the_librarys(device: CupyBackend) -> None:
    proto, b, bias = dense(node("Gelu", ["s"], ["y"], approximate="tanh"), np.float16)
    a = drawn((4, 8), np.dtype(np.float16), 0)
    cost, found = cost_of(proto, device, {"x": a})
    assert (cost.library_calls, cost.kernels) == (1, 0)
    assert_follows(found, a, b, bias, "gelu_tanh")
