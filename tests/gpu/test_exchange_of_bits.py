"""Arrays of the types that CuPy lacks by DLPack: shared if an element has 8 bits."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.backends.dlpack import CODES
from tests.gpu.producers import WithDlpack
from tests.support.dlpack_capsules import PADDED, Producer, read
from tests.support.onnx_builders import model, node, value

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
bits_module = pytest.importorskip("sardonyx.backends.cupy.bits")
log = pytest.importorskip("emulated_cuda.log", reason="the emulated device is not in here")
counts = pytest.importorskip("emulated_cuda.counts", reason="the emulated device is not in here")

NAMES = [f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
EIGHT = [np.dtype(getattr(ml_dtypes, name)) for name in NAMES]
FLOAT8, FLOAT4 = EIGHT[2], np.dtype(ml_dtypes.float4_e2m1fn)


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    """These tests need a device."""


def bits(shape: tuple[int, ...], dtype: Any) -> Any:
    codes = np.arange(np.prod(shape, dtype=int)).astype(np.uint8).reshape(shape)
    return bits_module.Bits(cupy.asarray(codes), dtype)


def lent(codes: Any, shape: tuple[int, ...], dtype: tuple[int, int, int], **options: Any) -> Any:
    return Producer(codes.data.ptr, shape, dtype, device=(2, codes.data.device_id), **options)


def turning(backend: Any, element_type: int = TensorProto.FLOAT8E5M2) -> sardonyx.Model:
    x, y = (value(name, None, element_type) for name in "xy")
    proto = model([node("Transpose", ["x"], ["y"])], [x], [y], opset=23)
    return sardonyx.load(proto, backend=backend)


# -- out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", EIGHT, ids=str)
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 1)])
def test_capsules(dtype: np.dtype[Any], version: tuple[int, int] | None) -> None:
    array = bits((4, 6), dtype)[::2].bits.T
    tensor = read(bits_module.Bits(array, dtype).__dlpack__(max_version=version))
    assert (tensor.code, tensor.bits, tensor.lanes) == (CODES[dtype], 8, 1)
    assert (tensor.shape, tensor.strides) == ((6, 2), (1, 12))
    assert (tensor.pointer, tensor.device) == (array.data.ptr, (2, array.data.device_id))
    assert tensor.version == ((1, 1) if version and version[0] else None)


def test_a_capsule_that_nobody_takes_frees_the_memory() -> None:
    pool = cupy.get_default_memory_pool()
    gc.collect()
    used = pool.used_bytes()
    capsule = bits((1000,), FLOAT8).__dlpack__()
    assert pool.used_bytes() > used
    del capsule
    assert pool.used_bytes() == used


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e3m2fn", "int4", "uint2"])
def test_fewer_than_eight_bits_do_not_leave(name: str) -> None:
    with pytest.raises(BufferError, match=f"{name} has fewer than 8 bits"):
        bits((4,), getattr(ml_dtypes, name)).__dlpack__()


def test_the_consumers_stream_waits() -> None:
    if not counts.available():
        pytest.skip("only the emulated device has a log")
    array = bits((2, 3), FLOAT8)
    with cupy.cuda.Stream(non_blocking=True) as own, log.logged() as entries:
        consumers = cupy.cuda.Stream(non_blocking=True)
        array.__dlpack__(stream=consumers.ptr)
    (record,) = [e for e in entries if e.kind == log.RECORD]
    (wait,) = [e for e in entries if e.kind == log.WAIT]
    assert (record.stream, wait.stream) == (own.ptr, consumers.ptr)


@pytest.mark.parametrize("dtype", EIGHT, ids=str)
def test_jax_on_the_cpu_takes_a_copy(dtype: np.dtype[Any]) -> None:
    array = bits((16, 16), dtype)

    class OnHost:
        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(dl_device=(1, 0), max_version=options.get("max_version"))

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    found = jax.dlpack.from_dlpack(OnHost())
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found).view(np.uint8), array.bits.get())


# -- in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", EIGHT, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_elements_of_eight_bits_are_shared(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    source = bits(shape, dtype)
    adopted: Any = cupy_backend.adopt(WithDlpack(source))
    assert (adopted.dtype, adopted.shape) == (dtype, shape)
    assert adopted.data.ptr == source.data.ptr
    view: Any = cupy_backend.adopt(WithDlpack(bits((4, 6), dtype)[1::2, ::-1]))
    expected = np.arange(24).reshape(4, 6)[1::2, ::-1]
    np.testing.assert_array_equal(view.bits.get(), expected)


def test_an_array_whose_interface_lacks_the_type_is_shared(cupy_backend: CupyBackend) -> None:
    class Torchs(WithDlpack):
        """As torch's tensors of float8."""

        @property
        def __cuda_array_interface__(self) -> Any:
            raise KeyError("float8_e5m2")

    source = bits((2, 3), FLOAT8)
    adopted: Any = cupy_backend.adopt(Torchs(source))
    assert (adopted.data.ptr, adopted.dtype) == (source.data.ptr, FLOAT8)


def test_the_memory_lives_as_long_as_the_array(cupy_backend: CupyBackend) -> None:
    codes = cupy.arange(6, dtype=np.uint8)
    source = lent(codes, (2, 3), (CODES[FLOAT8], 8, 1), flags=0)
    adopted: Any = cupy_backend.adopt(source)
    before = source.deleted
    assert adopted.bits.get().tolist() == [[0, 1, 2], [3, 4, 5]]
    del adopted
    assert source.deleted == before + 1


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("lanes", [1, 2])
def test_packed_elements_are_unpacked(cupy_backend: CupyBackend, count: int, lanes: int) -> None:
    codes = np.arange(6 * count, dtype=np.uint8) % 16
    packed = cupy.asarray(codes[::2] | codes[1::2] << 4)
    shape = (3, count) if lanes == 2 else (3, 2 * count)
    adopted: Any = cupy_backend.adopt(lent(packed, shape, (CODES[FLOAT4], 4, lanes)))
    assert adopted.dtype == FLOAT4
    np.testing.assert_array_equal(adopted.bits.get(), codes.reshape(3, 2 * count))


def test_padded_elements_are_shared(cupy_backend: CupyBackend) -> None:
    codes = cupy.arange(16, dtype=np.uint8)
    adopted: Any = cupy_backend.adopt(lent(codes, (16,), (17, 4, 1), flags=PADDED))
    assert (adopted.data.ptr, adopted.dtype) == (codes.data.ptr, FLOAT4)


@pytest.mark.parametrize("dtype", [(7, 8, 1), (10, 8, 2), (16, 6, 1), (0, 4, 1)])
def test_other_types_are_refused(cupy_backend: CupyBackend, dtype: tuple[int, int, int]) -> None:
    codes = cupy.zeros(16, np.uint8)
    with pytest.raises(sardonyx.InvalidInput, match=r"The input 'x', a .*Producer, cannot be read"):
        turning(cupy_backend)(lent(codes, (16,), dtype))


def test_the_producer_gets_the_callers_stream(cupy_backend: CupyBackend) -> None:
    passed = WithDlpack(bits((2, 3), FLOAT8))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(3):
            assert turning(cupy_backend)(passed).bits.get().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert set(passed.streams) == {stream.ptr}


def test_arrays_of_jax_on_the_cpu_enter_and_leave(cupy_backend: CupyBackend) -> None:
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    x = jax.device_put(codes.view(FLOAT8), jax.devices("cpu")[0])
    for _ in range(3):
        y = turning(cupy_backend)(x)
        assert isinstance(y, jax.Array)
        np.testing.assert_array_equal(np.asarray(y).view(np.uint8), codes.T)


@pytest.mark.parametrize("name", ["float8_e5m2", "float4_e2m1fn", "int4"])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_other_backends_take_such_arrays(
    cupy_backend: CupyBackend, backend: str, name: str
) -> None:
    number = {"float8_e5m2": TensorProto.FLOAT8E5M2, "int4": TensorProto.INT4}
    array = bits((2, 3), getattr(ml_dtypes, name))
    loaded = turning(backend, number.get(name, TensorProto.FLOAT4E2M1))
    for _ in range(2):
        # CuPy's function that makes arrays has no such types, so the result is NumPy's.
        found = loaded(array)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found.view(np.uint8), array.bits.get().T)
