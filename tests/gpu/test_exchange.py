"""Arrays of other libraries on CuPy: shared where they lie, copied from elsewhere, and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.dlpack import CudaMemory
from sardonyx.errors import InvalidInput
from tests.gpu.producers import Pinned, WithDlpack, WithInterface, askew
from tests.support.onnx_builders import model, node, value

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

DTYPES = ["bool", "float16", "float32", "float64", "complex64", "complex128"]
DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
ALL = [*map(np.dtype, DTYPES), np.dtype(ml_dtypes.bfloat16)]
EIGHT_BITS = [np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e5m2")]
PRODUCERS = [WithDlpack, WithInterface]


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    """These tests need a device."""


def counted(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    size = int(np.prod(shape))
    return cupy.asarray(np.arange(size).reshape(shape).astype(dtype))


def added(dtype: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    return model(
        [node("Add", ["x", "x"], ["y"])], [value("x", None, dtype)], [value("y", None, dtype)]
    )


# -- in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_arrays_of_the_device_are_shared(
    cupy_backend: CupyBackend, producer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    source = counted(shape, dtype)
    adopted: Any = cupy_backend.adopt(producer(source))
    assert adopted.data.ptr == source.data.ptr
    assert adopted.dtype == dtype
    np.testing.assert_array_equal(cupy_backend.fetch(adopted), source.get())


VIEWS = {
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "every other": lambda x: x[:, ::2],
    "repeated": lambda x: cupy.broadcast_to(x[:1], (5, 6)),
    "empty": lambda x: x[:0],
    "without axes": lambda x: x[1, 2],
    "with an axis of one": lambda x: x[:, 1:2],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_views_keep_their_strides(cupy_backend: CupyBackend, producer: Any, view: str) -> None:
    source = VIEWS[view](counted((4, 6)))
    adopted: Any = cupy_backend.adopt(producer(source))
    assert adopted.shape == source.shape
    assert not source.size or adopted.data.ptr == source.data.ptr
    np.testing.assert_array_equal(adopted.get(), source.get())
    loaded = sardonyx.load(added(), backend=cupy_backend)
    for _ in range(3):  # while it is recorded, while it is fused, and replayed
        np.testing.assert_array_equal(loaded(producer(source)).get(), 2 * source.get())


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_kernels_read_large_arrays_from_any_element_on(
    cupy_backend: CupyBackend, producer: Any, start: int
) -> None:
    whole = cupy.ones(2**18 + 3, np.float32)
    loaded = sardonyx.load(added(), backend=cupy_backend)
    for _ in range(3):
        assert (loaded(producer(whole[start : start + 2**18])) == 2).all()


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_memory_lives_as_long_as_the_array(cupy_backend: CupyBackend, producer: Any) -> None:
    adopted: Any = cupy_backend.adopt(producer(counted((2, 3))))
    others = [counted((2, 3)) * 0 for _ in range(4)]
    assert adopted.get().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert len(others) == 4


def test_an_array_that_lies_askew_is_copied(cupy_backend: CupyBackend) -> None:
    value = np.arange(5, dtype=np.float32)
    content = np.concatenate([np.zeros(1, np.uint8), value.view(np.uint8)])
    at_odd_address = cupy.asarray(content)[1:]
    described = WithInterface(at_odd_address, shape=(5,), typestr="<f4", strides=None)
    np.testing.assert_array_equal(cupy_backend.fetch(cupy_backend.adopt(described)), value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex128", "int64"])
@pytest.mark.parametrize("calls_before", range(3), ids=["recorded", "fused", "replayed"])
def test_arrays_of_cupy_that_lie_askew(
    cupy_backend: CupyBackend, calls_before: int, dtype: str
) -> None:
    """CuPy's own kernels would end all work of the process on the device."""
    types = {"float16": "FLOAT16", "float32": "FLOAT", "complex128": "COMPLEX128", "int64": "INT64"}
    element = getattr(onnx.TensorProto, types[dtype])
    nodes = [node("Concat", ["x", "x"], ["t"], axis=0), node("Transpose", ["t"], ["y"])]
    ends = [value("x", ["n", 3], element)], [value("y", None, element)]
    loaded = sardonyx.load(model(nodes, *ends), backend=cupy_backend)
    x = np.arange(12).reshape(4, 3).astype(dtype)
    for _ in range(calls_before):
        loaded(cupy.asarray(x))
    for _ in range(3):
        np.testing.assert_array_equal(loaded(askew(x)).get(), np.concatenate([x, x]).T)
        wide = askew(np.repeat(x, 2, axis=1))[:, ::2]
        np.testing.assert_array_equal(loaded(wide).get(), np.concatenate([x, x]).T)


def test_a_packed_record_is_read_at_its_own_stride(cupy_backend: CupyBackend) -> None:
    records = np.zeros(4, np.dtype([("flag", "u1"), ("number", "<f4")]))
    records["number"] = [1, 2, 3, 4]
    content = cupy.asarray(records.view(np.uint8))
    field = WithInterface(content[1:], shape=(4,), typestr="<f4", strides=(5,))
    assert cupy_backend.fetch(cupy_backend.adopt(field)).tolist() == [1, 2, 3, 4]


def test_pinned_memory_is_uploaded(cupy_backend: CupyBackend) -> None:
    pinned = Pinned(np.arange(6, dtype=np.float32).reshape(2, 3))
    adopted: Any = cupy_backend.adopt(pinned)
    assert cupy_backend.owns(adopted)
    pinned.array[...] = 0
    assert adopted.get().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    for _ in range(2):
        np.testing.assert_array_equal(cupy_backend.adopt(pinned.array).get(), np.zeros((2, 3)))


@pytest.mark.parametrize("producer", PRODUCERS)
def test_managed_memory_is_shared(cupy_backend: CupyBackend, producer: Any) -> None:
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        source = counted((2, 3))
    adopted: Any = cupy_backend.adopt(producer(source))
    assert adopted.data.ptr == source.data.ptr
    assert (adopted + adopted).get().ravel().tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_arrays_of_another_device_are_copied(cupy_backend: CupyBackend, producer: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    with cupy.cuda.Device(1 - cupy_backend.device):
        for view in VIEWS.values():
            source = view(counted((4, 6)))
            adopted: Any = cupy_backend.adopt(producer(source))
            assert cupy_backend.owns(adopted)
            np.testing.assert_array_equal(cupy_backend.fetch(adopted), source.get())


def test_read_only_arrays_are_shared(cupy_backend: CupyBackend) -> None:
    source = counted((2, 3))
    described = WithInterface(source, data=(source.data.ptr, True))
    assert cupy_backend.adopt(described).data.ptr == source.data.ptr  # type: ignore[attr-defined]  # CuPy has no types


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mask": object()}, "it has a mask"),
        ({"typestr": ">f4"}, "big-endian"),
        ({"typestr": "<M8"}, "elements of <M8"),
        ({"strides": (4,)}, "2 axes, but 1 strides"),
        ({"stream": 0}, "its stream is 0"),
        ({"stream": -1}, "its stream is -1"),
        ({"data": (0, False)}, "CUDA knows nothing of its memory"),
    ],
    ids=["mask", "byte order", "dates", "strides", "stream 0", "stream -1", "null"],
)
def test_what_cannot_be_read_is_refused_by_name(
    cupy_backend: CupyBackend, changed: dict[str, Any], reason: str
) -> None:
    loaded = sardonyx.load(added(), backend=cupy_backend)
    with pytest.raises(InvalidInput, match=f"The input 'x', a .*WithInterface,.*{reason}"):
        loaded(WithInterface(counted((2, 3)), **changed))


def test_a_description_that_lacks_its_shape_is_refused(cupy_backend: CupyBackend) -> None:
    broken = WithInterface(counted((2, 3)))
    del broken.__cuda_array_interface__["shape"]
    with pytest.raises(InvalidInput, match="cannot be read"):
        sardonyx.load(added(), backend=cupy_backend)(broken)


def test_an_array_of_the_host_without_dlpack_is_uploaded(cupy_backend: CupyBackend) -> None:
    class OnHost:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.ones(3, np.float32)

    assert cupy_backend.fetch(cupy_backend.adopt(OnHost())).tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [*ALL, *EIGHT_BITS], ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)], ids=str)
def test_memory_at_an_address_is_shared(
    cupy_backend: CupyBackend, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    value = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    source = cupy.asarray(value.reshape(-1).view(np.uint8))
    memory = CudaMemory(source.data.ptr, shape, dtype, cupy_backend.device)
    adopted: Any = cupy_backend.adopt(memory)
    assert not value.size or adopted.data.ptr == source.data.ptr
    assert adopted.dtype == dtype
    np.testing.assert_array_equal(cupy_backend.fetch(adopted), value)


def test_memory_at_an_address_is_not_copied() -> None:
    memory = CudaMemory(256, (2,), np.dtype(np.float32), 0)
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="shared where it is"):
            memory.__dlpack__(**options)


# -- out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [*PRODUCERS, lambda x: x], ids=["dlpack", "interface", "cupy"])
def test_results_stay_on_the_device(cupy_backend: CupyBackend, producer: Any) -> None:
    loaded = sardonyx.load(added(), backend=cupy_backend)
    for _ in range(3):
        result = loaded(producer(counted((2, 3))))
        assert isinstance(result, cupy.ndarray)
        assert result.get().ravel().tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_an_output_that_is_an_input_is_that_object(
    cupy_backend: CupyBackend, producer: Any
) -> None:
    proto = model([node("Identity", ["x"], ["y"])], ["x"], ["y"])
    loaded = sardonyx.load(proto, backend=cupy_backend)
    for _ in range(3):
        passed = producer(counted((2, 3)))
        assert loaded(passed) is passed


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_results_leave_through_dlpack(dtype: np.dtype[Any]) -> None:
    result = counted((2, 3), dtype)
    taken = cupy.from_dlpack(WithDlpack(result))
    assert (taken.data.ptr, taken.dtype) == (result.data.ptr, dtype)


def test_results_of_numpy_arrays_are_numpys(cupy_backend: CupyBackend) -> None:
    result = sardonyx.load(added(), backend=cupy_backend)(np.ones(3, np.float32))
    assert type(result) is np.ndarray


def test_arrays_of_jax_on_the_cpu_enter_and_leave(cupy_backend: CupyBackend) -> None:
    x = jax.device_put(np.ones((2, 3), np.float32), jax.devices("cpu")[0])
    result = sardonyx.load(added(), backend=cupy_backend)(x)
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, np.full((2, 3), 2))


# -- streams --------------------------------------------------------------------------------------


def test_the_producer_gets_the_callers_stream(cupy_backend: CupyBackend) -> None:
    loaded = sardonyx.load(added(), backend=cupy_backend)
    passed = WithDlpack(counted((2, 3)))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        loaded(passed)
    assert set(passed.streams) == {stream.ptr}


def test_the_producer_gets_the_default_stream_by_its_number(cupy_backend: CupyBackend) -> None:
    passed = WithDlpack(counted((2, 3)))
    cupy_backend.adopt(passed)
    assert passed.streams == [1]  # DLPack does not allow 0
