"""Products of matrices on CuPy, by cuBLAS called directly: drawn layouts against NumPy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.gpu.producers import askew
from tests.gpu.test_cupy_faults import said_by

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(d) for d in ("float16", BFLOAT16, "float32", "float64")]
DTYPES = [*FLOATS, np.dtype("complex64"), np.dtype("complex128")]
UNITS = {dtype: float(ml_dtypes.finfo(dtype).eps) for dtype in FLOATS} | {
    np.dtype("complex64"): 2.0**-23,
    np.dtype("complex128"): 2.0**-52,
}
# The same functions of arrays of NumPy and of CuPy: other places of the same elements.
LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "row-major": lambda xp, x: x,
    "column-major": lambda xp, x: xp.swapaxes(xp.swapaxes(x, -1, -2).copy(), -1, -2),
    "with gaps": lambda xp, x: xp.repeat(x, 2, axis=-1)[..., ::2],
    "within rows": lambda xp, x: xp.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "within columns": lambda xp, x: xp.concatenate([x, x], axis=-2)[..., : x.shape[-2], :],
    "backwards": lambda xp, x: xp.flip(xp.flip(x, -1).copy(), -1),
    "stacked backwards": lambda xp, x: xp.flip(xp.flip(x, 0).copy(), 0),
    "stack last": lambda xp, x: xp.moveaxis(xp.moveaxis(x, 0, -1).copy(), -1, 0),
    "stack between": lambda xp, x: xp.swapaxes(xp.swapaxes(x, 0, -2).copy(), 0, -2),
    "one row repeated": lambda xp, x: xp.broadcast_to(x[..., :1, :], x.shape),
    "one column repeated": lambda xp, x: xp.broadcast_to(x[..., :1], x.shape),
}
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (4, 5)),
    ((1, 4), (4, 1)),
    ((3, 1), (1, 5)),
    ((1, 1), (1, 1)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (1, 5, 4, 2)),
    ((2, 3, 1, 4), (3, 4, 2)),
    ((2, 1, 3, 3, 4), (1, 2, 1, 4, 2)),
    ((12, 11, 2, 3), (1, 11, 3, 2)),
    ((4,), (4, 5)),
    ((4,), (2, 4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (4,)),
]
EMPTY: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((3, 4), (4, 0)),
    ((0, 3, 4), (4, 5)),
    ((2, 3, 0), (2, 0, 5)),
    ((0,), (0,)),
    ((1, 3, 4), (0, 4, 5)),
]


@pytest.fixture
def xp(cupy_backend: CupyBackend) -> Any:
    with cupy_backend.scope():
        yield cupy_backend


def drawn(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng([seed, *shape])
    x = draw.normal(size=shape)
    return np.asarray(x + 1j * draw.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def assert_close(found: Any, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    """Compare with a product in float64; the error grows with the size of the terms."""
    result = cupy.asnumpy(found)
    expected, size = wide(a) @ wide(b), abs(wide(a)) @ abs(wide(b))
    assert (result.dtype, result.shape) == (a.dtype, expected.shape)
    unit = UNITS[a.dtype]
    # The sum rounds in float32 or wider, and once to a narrower type.
    rounding = unit * abs(expected) + 4 * min(unit, 2.0**-23) * size
    assert np.all(abs(wide(result) - expected) <= rounding)


def calls_of(action: Callable[[], Any]) -> Any:
    counts = pytest.importorskip("emulated_cuda.counts", reason="only an emulated device counts")
    if not counts.available():
        pytest.skip("only the emulated device counts")
    with counts.counted() as counted:
        action()
    return counted


@pytest.fixture(autouse=True)
def _none_refused(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Any:
    yield
    if "refused" not in request.node.name:
        assert not caplog.records, "a product was left to CuPy"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_shapes(xp: CupyBackend, pair: Any, dtype: np.dtype[Any]) -> None:
    a, b = (drawn(shape, dtype, seed) for seed, shape in enumerate(pair))
    assert_close(xp.matmul(cupy.asarray(a), cupy.asarray(b)), a, b)


@pytest.mark.parametrize("dtype", [BFLOAT16, *map(np.dtype, "efD")], ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
def test_layouts(xp: CupyBackend, left: str, dtype: np.dtype[Any]) -> None:
    for i, (a_shape, b_shape) in enumerate(PAIRS):
        if min(len(a_shape), len(b_shape)) < 2:
            continue
        for laid_out in LAYOUTS.values():
            a, b = drawn(a_shape, dtype, i), drawn(b_shape, dtype, i + 1)
            x, y = LAYOUTS[left](cupy, cupy.asarray(a)), laid_out(cupy, cupy.asarray(b))
            a, b = LAYOUTS[left](np, a), laid_out(np, b)
            assert_close(xp.matmul(x, y), a, b)


@pytest.mark.parametrize("pair", EMPTY, ids=str)
def test_empty_axes(xp: CupyBackend, pair: Any) -> None:
    a, b = (np.ones(shape, np.float32) for shape in pair)
    # Memory of the pool that holds something else.
    dirty = cupy.full((a @ b).shape, 7, np.float32)
    del dirty
    assert_close(xp.matmul(cupy.asarray(a), cupy.asarray(b)), a, b)


def test_drawn_products(xp: CupyBackend) -> None:
    draw = np.random.default_rng(5)
    for _ in range(150):
        dtype = DTYPES[draw.integers(len(DTYPES))]
        rank = int(draw.integers(0, 4))
        batch = draw.integers(1, 5, rank)
        m, k, n = (int(size) for size in draw.integers(1, 9, 3))
        sides = []
        for matrix in ((m, k), (k, n)):
            kept = np.where(draw.integers(0, 3, rank) == 0, 1, batch)
            kept = kept[int(draw.integers(0, rank + 1)) :]
            x = drawn((*map(int, kept), *matrix), dtype, int(draw.integers(99)))
            order = draw.permutation(x.ndim)
            sides.append((x, order))
        on_device = [cupy.asarray(x.transpose(o).copy()).transpose(np.argsort(o)) for x, o in sides]
        assert_close(xp.matmul(*on_device), *(x for x, _ in sides))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unaligned_operands(xp: CupyBackend, dtype: np.dtype[Any]) -> None:
    a, b = drawn((3, 4), dtype, 0), drawn((4, 5), dtype, 1)
    left, right = askew(a), askew(b)
    assert_close(xp.matmul(left, cupy.asarray(b)), a, b)
    assert_close(xp.matmul(right.T, left.T), b.T, a.T)
    assert_close(xp.matmul(left[::2, 1:3], right[1:3]), a[::2, 1:3], b[1:3])
    # By way of CuPy's own product.
    assert_close(xp.matmul(left[0], right)[None], a[:1], b)


def test_more_matrices_than_one_call_takes(xp: CupyBackend) -> None:
    a, b = (drawn(shape, np.dtype("f"), 0) for shape in ((70_000, 1, 2), (70_000, 2, 1)))
    assert_close(xp.matmul(cupy.asarray(a), cupy.asarray(b)), a, b)


def test_operands_of_two_dtypes(xp: CupyBackend) -> None:
    a, b = drawn((3, 4), np.dtype("e"), 0), drawn((4, 5), np.dtype("f"), 1)
    assert_close(xp.matmul(cupy.asarray(a), cupy.asarray(b)), a.astype("f"), b)


def test_integers(xp: CupyBackend) -> None:
    a, b = np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)
    found = xp.matmul(cupy.asarray(a), cupy.asarray(b))
    np.testing.assert_array_equal(cupy.asnumpy(found), a @ b)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_the_result_held_before_does_not_count(xp: CupyBackend, value: float) -> None:
    a, b = drawn((3, 4), np.dtype("f"), 0), drawn((4, 5), np.dtype("f"), 1)
    out = cupy.full((3, 5), value, np.float32)
    assert xp.matmul(cupy.asarray(a), cupy.asarray(b), out=out) is out
    assert_close(out, a, b)


def test_narrow_floats_are_summed_in_float32(xp: CupyBackend) -> None:
    for dtype in ("float16", BFLOAT16):
        a = np.ones((1, 5000), dtype)
        assert float(xp.matmul(cupy.asarray(a), cupy.asarray(a.T))[0, 0]) == np.dtype(dtype).type(
            5000
        )


# -- the result's array ---------------------------------------------------------------------------


def test_a_result_that_overlaps_an_operand(xp: CupyBackend) -> None:
    a, b = drawn((4, 4), np.dtype("f"), 0), drawn((4, 4), np.dtype("f"), 1)
    out = cupy.asarray(a)
    xp.matmul(out, cupy.asarray(b), out=out)
    assert_close(out, a, b)


@pytest.mark.parametrize("out", [((5, 3), "f"), ((3, 5), "d")])
def test_a_result_that_does_not_fit(xp: CupyBackend, out: Any) -> None:
    a, b = cupy.ones((3, 4), "f"), cupy.ones((4, 5), "f")
    with pytest.raises(ValueError, match=r"float32\[3, 5\]; `out` is"):
        xp.matmul(a, b, out=cupy.empty(*out))
    with pytest.raises(ValueError, match="strides"):
        xp.matmul(a, b, out=cupy.empty((5, 3), "f").T)


def test_shapes_that_do_not_fit(xp: CupyBackend) -> None:
    with pytest.raises(
        ValueError, match=r"inner sizes of matrices of shapes \(3, 4\) and \(3, 4\)"
    ):
        xp.matmul(cupy.ones((3, 4)), cupy.ones((3, 4)))


@pytest.mark.parametrize("axes", [0, 1, 2, ([0, -1], [1, 0]), ([], [])], ids=str)
def test_tensordot(xp: CupyBackend, axes: Any) -> None:
    for dtype in FLOATS:
        a, b = drawn((4, 3, 4), dtype, 0), drawn((3, 4, 2), dtype, 1)
        if axes == 1:
            b = b.swapaxes(0, 1)
        if axes == ([0, -1], [1, 0]):
            b = drawn((4, 4, 2), dtype, 1)
        found = cupy.asnumpy(xp.tensordot(cupy.asarray(a), cupy.asarray(b), axes=axes))
        expected = np.tensordot(wide(a), wide(b), axes)
        assert (found.dtype, found.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(wide(found), expected, rtol=UNITS[dtype], atol=8 * UNITS[dtype])


# -- what a product costs -------------------------------------------------------------------------


HEADS = (2, 3, 5, 4)


@pytest.mark.parametrize(
    ("a", "b", "calls"),
    [
        (lambda: cupy.ones((7, 8, 4)), lambda: cupy.ones((4, 5)), 1),
        (lambda: cupy.ones((7, 9, 4))[:, -1:], lambda: cupy.ones((5, 4)).T, 1),
        (lambda: cupy.ones(HEADS), lambda: cupy.ones(HEADS).swapaxes(-1, -2), 1),
        (lambda: cupy.ones((2, 5, 3, 4)).swapaxes(1, 2), lambda: cupy.ones((2, 3, 4, 5)), 2),
        (lambda: cupy.ones((6, 5, 4)), lambda: cupy.ones((1, 4, 5)), 1),
        (lambda: cupy.ones((5, 4)), lambda: cupy.ones((6, 4, 5)), 1),
    ],
    ids=["rows", "last rows", "scores", "heads between", "shared right", "shared left"],
)
def test_strides_need_no_copies(xp: CupyBackend, a: Any, b: Any, calls: int) -> None:
    x, y = a(), b()
    xp.matmul(x, y)
    cost = calls_of(lambda: xp.matmul(x, y))
    assert (cost.library_calls, cost.kernels, cost.allocations) == (calls, 0, 0)


def test_stacks_without_one_stride_are_copied_instead_of_many_calls(xp: CupyBackend) -> None:
    x, y = cupy.ones((20, 2, 30, 4)).swapaxes(1, 2), cupy.ones((20, 30, 4, 5))
    xp.matmul(x, y)
    cost = calls_of(lambda: xp.matmul(x, y))
    assert (cost.library_calls, cost.kernels) == (1, 1)


# -- streams and threads --------------------------------------------------------------------------


def test_products_of_a_graph(xp: CupyBackend) -> None:
    from sardonyx.backends.cupy.cublas_handles import workspace_of_capture  # noqa: PLC0415

    draw = np.random.default_rng(0)
    stream = cupy.cuda.Stream(non_blocking=True)
    for dtype in DTYPES:
        x, y = cupy.empty((2, 3, 4), dtype), cupy.asarray(drawn((4, 5), dtype, 1))
        out, mixed = cupy.empty((2, 3, 5), dtype), cupy.empty((2, 3, 3), dtype)
        with stream, workspace_of_capture() as kept:
            stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
            xp.matmul(x, y, out=out)
            xp.matmul(out, out.swapaxes(-1, -2), out=mixed)
            graph = stream.end_capture()
        assert kept.mem.size > 0
        for _ in range(2):
            a = drawn((2, 3, 4), dtype, int(draw.integers(99)))
            x.set(a)
            cupy.cuda.Device().synchronize()
            graph.launch(stream)
            stream.synchronize()
            assert_close(out, a, cupy.asnumpy(y))
            first = cupy.asnumpy(out)
            assert_close(mixed, first, first.swapaxes(-1, -2))


def test_products_on_many_streams(xp: CupyBackend) -> None:
    from sardonyx.backends.cupy.cublas_handles import MOST_STREAMS, handle  # noqa: PLC0415

    a = drawn((3, 3), np.dtype("f"), 0)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(MOST_STREAMS + 3)]
    for stream in streams * 2:
        with stream:
            x = cupy.asarray(a)
            found = xp.matmul(x, x)
            stream.synchronize()
            assert_close(found, a, a)
    assert len(handle()._workspaces) == MOST_STREAMS


def test_threads(xp: CupyBackend) -> None:
    wrong: list[int] = []

    def multiply(seed: int) -> None:
        a = drawn((4, 4), np.dtype("d"), seed)
        with xp.scope(), cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(20):
                x = cupy.asarray(a)
                found = xp.matmul(x, x)
                stream.synchronize()
                if not np.allclose(cupy.asnumpy(found), a @ a):
                    wrong.append(seed)

    for _ in range(2):
        threads = [threading.Thread(target=multiply, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_thread_takes_the_handle_of_one_that_has_ended(xp: CupyBackend) -> None:
    from sardonyx.backends.cupy.cublas_handles import handle  # noqa: PLC0415

    pointers = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: pointers.append(handle().ready()))
        thread.start()
        thread.join()
    assert pointers[0] == pointers[1] != handle().ready()


TWO_DEVICES = """
import threading
import cupy, numpy as np
from sardonyx.backends import find
if cupy.cuda.runtime.getDeviceCount() > 1:
    a = np.random.default_rng(0).normal(size=(4, 4)).astype("f")
    q = np.arange(16, dtype=np.int8).reshape(4, 4)

    def multiply(device):
        xp = find("cupy", f"cuda:{device}")
        for _ in range(3):
            with xp.scope():
                x, y = cupy.asarray(a), cupy.asarray(q)
                assert xp.matmul(x, x).device.id == device
                assert np.allclose(xp.matmul(x, x).get(), a @ a, atol=1e-5)
                assert (xp.integer_matmul(y, y).get() == q.astype("i") @ q.astype("i")).all()
        print(device)

    multiply(0)
    multiply(1)
    for thread in [threading.Thread(target=multiply, args=(i % 2,)) for i in range(4)]:
        thread.start()
        thread.join()
"""


def test_two_devices(cupy_backend: CupyBackend) -> None:
    said = said_by(TWO_DEVICES, EMULATED_CUDA_DEVICES="2")
    if not said:
        pytest.skip("there is one GPU")
    assert said == ["0", "1", "0", "1", "0", "1"]


def test_a_library_without_a_function_is_not_called() -> None:
    from sardonyx.backends.cupy.cublas import Unavailable, functions_of  # noqa: PLC0415

    with pytest.raises(Unavailable, match="no function cublasOfTomorrow"):
        functions_of(ctypes.CDLL(None), {"cublasOfTomorrow": ()})
