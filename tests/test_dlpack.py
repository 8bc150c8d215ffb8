"""Arrays of the host by DLPack, of types that NumPy does not exchange."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.backends.dlpack import CODES, Exported, on_host
from tests.support.dlpack_capsules import PADDED, Producer, read
from tests.support.onnx_builders import model, node, value

EIGHT = {name: CODES[np.dtype(getattr(ml_dtypes, name))] for name in (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"
)}  # fmt: skip
FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
BYTES = np.arange(256, dtype=np.uint8)
BACKENDS = ["numpy", "jax"]


def turning(element_type: int) -> Any:
    """A model of one Transpose."""
    x, y = (value(name, None, element_type) for name in "xy")
    return model([node("Transpose", ["x"], ["y"])], [x], [y], opset=23)


def of(array: np.ndarray[Any, Any], *dtype: int, **options: Any) -> Producer:
    """Lend an array's memory, which the test keeps."""
    code, bits, lanes = dtype
    return Producer(array.ctypes.data, array.shape, (code, bits, lanes), **options)


# -- in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [None, 0], ids=["without a version", "with one"])
@pytest.mark.parametrize("name", EIGHT)
def test_elements_of_eight_bits_are_shared(name: str, flags: int | None) -> None:
    found = on_host(of(BYTES, EIGHT[name], 8, 1, flags=flags))
    assert found.ctypes.data == BYTES.ctypes.data
    assert found.dtype == getattr(ml_dtypes, name)
    np.testing.assert_array_equal(found.view(np.uint8), BYTES)


def test_bfloat16_is_shared() -> None:
    x = np.array([1.5, -2, np.inf], ml_dtypes.bfloat16)
    found = on_host(of(x, 4, 16, 1, strides=(1,)))
    assert (found.ctypes.data, found.dtype) == (x.ctypes.data, x.dtype)
    np.testing.assert_array_equal(found, x)


def test_strides_are_kept() -> None:
    whole = BYTES[:12].reshape(3, 4)
    found = on_host(Producer(whole.ctypes.data, (2, 3), (12, 8, 1), strides=(1, 4)))
    np.testing.assert_array_equal(found.view(np.uint8), whole.T[:2])


def test_two_elements_of_four_bits_in_a_byte_become_two() -> None:
    """As torch has them: the shape counts bytes."""
    packed = np.array([[0x10, 0x32], [0x54, 0x76], [0x98, 0xBA]], np.uint8)
    found = on_host(of(packed, 17, 4, 2))
    assert found.dtype == FLOAT4
    np.testing.assert_array_equal(found.view(np.uint8), np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("shape", [(3, 5), (15,), (1,), (), (0, 2)])
def test_packed_elements_of_four_bits(shape: tuple[int, ...]) -> None:
    """As DLPack has them: the shape counts elements, and rows may begin within a byte."""
    size = int(np.prod(shape))
    codes = np.arange(size, dtype=np.uint8) % 16
    pairs = np.append(codes, np.uint8(0))[: size + size % 2].reshape(-1, 2)
    packed = np.ascontiguousarray(pairs[:, 0] | pairs[:, 1] << 4)
    found = on_host(Producer(packed.ctypes.data, shape, (17, 4, 1)))
    assert (found.dtype, found.shape) == (FLOAT4, shape)
    np.testing.assert_array_equal(found.view(np.uint8).reshape(-1), codes)


def test_elements_of_four_bits_with_a_byte_for_each_are_shared() -> None:
    codes = np.arange(16, dtype=np.uint8)
    found = on_host(of(codes, 17, 4, 1, flags=PADDED))
    assert (found.ctypes.data, found.dtype) == (codes.ctypes.data, FLOAT4)


@pytest.mark.parametrize(
    "dtype", [(7, 8, 1), (10, 8, 2), (16, 6, 1), (17, 4, 4), (0, 4, 1), (99, 8, 1)]
)
def test_other_types_are_refused(dtype: tuple[int, int, int]) -> None:
    loaded = sardonyx.load(turning(TensorProto.FLOAT8E5M2), backend="numpy")
    with pytest.raises(sardonyx.InvalidInput, match=r"The input 'x', a .*Producer, cannot be read"):
        loaded(of(BYTES, *dtype))


def test_packed_elements_out_of_order_are_refused() -> None:
    with pytest.raises((BufferError, RuntimeError)):
        on_host(Producer(BYTES.ctypes.data, (4, 4), (17, 4, 1), strides=(1, 4)))


def test_the_producer_learns_when_its_memory_is_free() -> None:
    lent = of(BYTES, 12, 8, 1)
    found = on_host(lent)
    before = lent.deleted
    del found
    assert lent.deleted == before + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_models_take_such_arrays(backend: str) -> None:
    loaded = sardonyx.load(turning(TensorProto.FLOAT8E5M2), backend=backend)
    x = BYTES[:120].reshape(8, 15)
    for _ in range(3):
        found = loaded.run(None, {"x": of(x, 12, 8, 1, flags=0)})[0]
        assert found.dtype == ml_dtypes.float8_e5m2
        np.testing.assert_array_equal(np.asarray(found).view(np.uint8), x.T)


# -- out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EIGHT)
def test_arrays_of_numpy_leave(name: str) -> None:
    x = BYTES[:30].reshape(5, 6).view(getattr(ml_dtypes, name))[:, ::2]
    tensor = read(Exported(x).__dlpack__(max_version=(1, 1)))
    assert (tensor.code, tensor.bits, tensor.lanes) == (EIGHT[name], 8, 1)
    assert (tensor.shape, tensor.strides, tensor.version) == ((5, 3), (6, 2), (1, 1))
    assert tensor.pointer == x.ctypes.data


@pytest.mark.parametrize("name", [*EIGHT, "bfloat16"])
def test_jax_takes_arrays_of_numpy_and_gives_them_back(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.resize(BYTES, 256 * dtype.itemsize).view(dtype).reshape(16, 16)
    array = jnp.from_dlpack(Exported(x))
    assert array.dtype == dtype
    np.testing.assert_array_equal(np.asarray(array).view(np.uint8), x.view(np.uint8))
    back = on_host(array)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.view(np.uint8), x.view(np.uint8))


def test_jax_packs_elements_of_four_bits() -> None:
    x = np.arange(16, dtype=np.uint8).view(FLOAT4)
    np.testing.assert_array_equal(on_host(jnp.asarray(x)).view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "int4", "uint2"])
def test_fewer_than_eight_bits_do_not_leave(name: str) -> None:
    with pytest.raises(BufferError, match=f"{name} has fewer than 8 bits"):
        Exported(np.zeros(4, getattr(ml_dtypes, name))).__dlpack__()


def test_results_are_arrays_of_jax() -> None:
    loaded = sardonyx.load(turning(TensorProto.FLOAT8E4M3FN), backend="numpy")
    x = jnp.asarray(BYTES[:6].view(ml_dtypes.float8_e4m3fn).reshape(2, 3))
    for _ in range(3):
        y = loaded(x)
        assert isinstance(y, jax.Array)
        np.testing.assert_array_equal(np.asarray(y).view(np.uint8), BYTES[:6].reshape(2, 3).T)
