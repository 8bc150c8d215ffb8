"""JAX on CUDA: the same results as anywhere, in full precision, on the device asked for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.dlpack import CudaMemory
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from tests.gpu.producers import WithInterface

pytestmark = pytest.mark.gpu

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"]
LOW_PRECISION = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [*DTYPES, *LOW_PRECISION])
def test_what_is_put_lies_on_the_device_and_is_fetched(jax_backend: JaxBackend, dtype: str) -> None:
    value = np.arange(6).reshape(2, 3).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    with jax_backend.scope():
        array: Any = jax_backend.put(value)
        fetched = jax_backend.fetch(array)
    assert array.devices() == {jax_backend.device}
    assert fetched.dtype == value.dtype
    np.testing.assert_array_equal(fetched, value)


def test_results_stay_on_the_device(jax_backend: JaxBackend) -> None:
    with jax_backend.scope():
        x = jax_backend.put(numbers(3))
        double: Any = jax_backend.compile(lambda x: [x + x], [x]).run(x)[0]
    assert double.devices() == {jax_backend.device}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "step by step"])
@pytest.mark.parametrize("shape", [(257, 1031), (3, 64, 1031)])
def test_products_of_float32_are_not_rounded_to_tf32(
    jax_backend: JaxBackend, shape: tuple[int, ...], compiled: bool
) -> None:
    a, b = numbers(*shape), numbers(*shape[:-2], shape[-1], 33, seed=1)

    def product(a: Any, b: Any) -> list[Any]:
        return [jax_backend.matmul(a, b)]

    with jax_backend.scope():
        given = jax_backend.put(a), jax_backend.put(b)
        multiply = jax_backend.compile(product, given).run if compiled else product
        found = jax_backend.fetch(multiply(*given)[0])
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    # TF32 keeps 10 bits of each factor, and would err by some 1e-4 of the scale.
    assert np.max(np.abs(found - wanted) / scale) < 2e-6


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_of_float32_is_exact(jax_backend: JaxBackend, groups: int) -> None:
    x, weight = numbers(2, 64, 19, 18), numbers(32, 64 // groups, 3, 2, seed=1)
    form: dict[str, Any] = {"strides": (2, 1), "pads": ((1, 0), (2, 1)), "dilations": (1, 2)}
    with jax_backend.scope():
        arrays = jax_backend.put(x), jax_backend.put(weight)
        found = jax_backend.fetch(jax_backend.convolution(*arrays, groups=groups, **form))
    wide: list[Any] = [x.astype(np.float64), weight.astype(np.float64)]
    wanted: Any = HOST.convolution(*wide, groups=groups, **form)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# -- arrays of other libraries --------------------------------------------------------------------


def taken(jax_backend: JaxBackend, array: Any) -> Any:
    """What a compiled program, which adds it to itself, gets of an array."""
    with jax_backend.scope():
        adopted: Any = jax_backend.adopt(array)
        assert adopted.devices() == {jax_backend.device}
        return jax_backend.fetch(jax_backend.compile(lambda x: [x + x], [adopted]).run(adopted)[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "complex64"])
def test_memory_at_an_address_is_read(jax_backend: JaxBackend, dtype: str) -> None:
    cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
    value = np.arange(6).reshape(2, 3).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    source = cupy.asarray(value.reshape(-1).view(np.uint8))
    cupy.cuda.get_current_stream().synchronize()
    memory = CudaMemory(source.data.ptr, value.shape, value.dtype, source.device.id)
    np.testing.assert_array_equal(taken(jax_backend, memory), value + value)


def test_arrays_with_nothing_but_cudas_interface_are_read(jax_backend: JaxBackend) -> None:
    cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = cupy.asarray(value)
    cupy.cuda.get_current_stream().synchronize()
    np.testing.assert_array_equal(taken(jax_backend, WithInterface(array)), value + value)


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_arrays_may_begin_at_any_element(jax_backend: JaxBackend, start: int) -> None:
    cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
    whole = np.arange(4099, dtype=np.float32)
    found = taken(jax_backend, cupy.asarray(whole)[start:])
    np.testing.assert_array_equal(found, 2 * whole[start:])
