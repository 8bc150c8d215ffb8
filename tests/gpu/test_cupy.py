"""CuPy against NumPy: one device, every dtype that it has, and all that an op may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.backends.standard import Standard
from sardonyx.errors import BackendUnavailable

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

DTYPES = ["bool", "float16", "float32", "float64", "complex64", "complex128"]
DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(d) for d in ("float64", "float32", "float16", ml_dtypes.bfloat16)]

Function = Callable[[Backend, Any], Any]


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def precision(dtype: np.dtype[Any]) -> float:
    return 2.0 ** -{"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[dtype.name]


# -- arrays in and out ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*map(np.dtype, DTYPES), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_what_is_put_is_fetched(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    value = np.arange(6)[: int(np.prod(shape))].reshape(shape).astype(dtype)
    array = cupy_backend.put(value)
    assert cupy_backend.owns(array)
    assert cupy_backend.numpy_dtype(array.dtype) == dtype
    fetched = cupy_backend.fetch(array)
    assert fetched.dtype == dtype
    np.testing.assert_array_equal(fetched, value)


def test_strings_are_refused(cupy_backend: CupyBackend) -> None:
    with pytest.raises(TypeError, match="no arrays of object"):
        cupy_backend.put(np.asarray(["a"], dtype=object))


class Foreign:
    """An array of some other library: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_an_array_of_the_same_device_is_adopted_without_a_copy(cupy_backend: CupyBackend) -> None:
    source: Any = cupy_backend.put(numbers(2, 3))
    adopted = cupy_backend.adopt(Foreign(source))
    assert adopted.data.ptr == source.data.ptr
    assert cupy_backend.owns(adopted)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_host_arrays_are_adopted(cupy_backend: CupyBackend, dtype: str) -> None:
    value = numbers(2, 3).astype(jax.numpy.dtype(dtype))
    with jax.enable_x64(True):
        on_cpu = jax.device_put(value, jax.devices("cpu")[0])
    for foreign in (value, on_cpu):
        np.testing.assert_array_equal(cupy_backend.fetch(cupy_backend.adopt(foreign)), value)


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16"])
def test_jax_arrays_of_the_device_are_adopted(cupy_backend: CupyBackend, dtype: str) -> None:
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"no CUDA for JAX: {error}")
    value = numbers(2, 3).astype(jax.numpy.dtype(dtype))
    adopted = cupy_backend.adopt(jax.device_put(value, device))
    np.testing.assert_array_equal(cupy_backend.fetch(adopted), value)


def test_torch_tensors_of_the_device_are_adopted(cupy_backend: CupyBackend) -> None:
    torch = pytest.importorskip("torch", reason="no torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA for torch")
    tensor = torch.arange(6.0, device=f"cuda:{cupy_backend.device}").reshape(2, 3)
    adopted = cupy_backend.adopt(tensor)
    assert adopted.data.ptr == tensor.data_ptr()
    np.testing.assert_array_equal(cupy_backend.fetch(adopted), tensor.cpu().numpy())


def test_writing_to_a_shielded_array_leaves_the_original(cupy_backend: CupyBackend) -> None:
    value = numbers(2, 3)
    original = cupy_backend.put(value)
    shielded: Any = cupy_backend.shield(original)
    shielded[...] = 0
    np.testing.assert_array_equal(cupy_backend.fetch(original), value)


def test_a_device_that_is_not_there_is_named(cupy_backend: CupyBackend) -> None:
    with pytest.raises(BackendUnavailable, match="there is no CUDA device 999"):
        type(cupy_backend)(device=999)


def test_running_out_of_memory_is_explained(cupy_backend: CupyBackend) -> None:
    cupy = pytest.importorskip("cupy")
    # CuPy's own function: the backend refuses such a size before the device is asked.
    with cupy_backend.scope(), pytest.raises(MemoryError) as error:
        cupy.empty((2**50,), dtype=np.uint8)
    assert "out of memory" in (cupy_backend.explain(error.value) or "")


# -- the standard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", list(Standard.__annotations__))
def test_every_function_of_the_standard_is_bound(cupy_backend: CupyBackend, function: str) -> None:
    assert callable(getattr(cupy_backend, function))


def function(name: str) -> Function:
    return lambda xp, x: getattr(xp, name)(x)


ELEMENTWISE = "abs ceil cos erf exp expm1 floor log1p negative round sign sin square tanh trunc"
ONE_ARRAY: dict[str, Function] = {
    **{name: function(name) for name in ELEMENTWISE.split()},
    "argmax": lambda xp, x: xp.argmax(x, axis=1, keepdims=True),
    "argmin": lambda xp, x: xp.argmin(x, axis=0),
    "argsort": lambda xp, x: xp.argsort(x, axis=0),
    "argsort descending": lambda xp, x: xp.argsort(xp.sign(x), axis=1, descending=True),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
    "concat": lambda xp, x: xp.concat([x, x], axis=-1),
    "cumulative_prod": lambda xp, x: xp.cumulative_prod(x, axis=1),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "flip": lambda xp, x: xp.flip(x, axis=1),
    "matmul": lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)),
    "matmul of a batch": lambda xp, x: xp.matmul(xp.stack([x, x]), xp.matrix_transpose(x)),
    "max": lambda xp, x: xp.max(x, axis=(0, 1), keepdims=True),
    "maximum with a scalar": lambda xp, x: xp.astype(xp.maximum(x, 0), x.dtype),
    "mean": lambda xp, x: xp.mean(x, axis=1),
    "pad": lambda xp, x: xp.pad(x, [(1, 2), (0, 3)], 0.5),
    "pad with an array": lambda xp, x: xp.pad(x, [(1, 2), (0, 3)], x[0, 0]),
    "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)),
    "prod": lambda xp, x: xp.prod(x, axis=0),
    "roll": lambda xp, x: xp.roll(x, 2, axis=1),
    "sqrt": lambda xp, x: xp.sqrt(xp.abs(x)),
    "sort descending": lambda xp, x: xp.sort(x, axis=1, descending=True),
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "sum": lambda xp, x: xp.sum(x, axis=1, keepdims=True),
    "take": lambda xp, x: xp.take(x, xp.asarray([1, 0, -1]), axis=0),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,))),
    "tril": lambda xp, x: xp.tril(x, k=1),
    "triu": lambda xp, x: xp.triu(x, k=-1),
    "unstack": lambda xp, x: xp.unstack(x, axis=1)[2],
    "vecdot": lambda xp, x: xp.vecdot(x, x, axis=0),
    "where": lambda xp, x: xp.where(x > 0, x, -x),
    "where with a scalar": lambda xp, x: xp.where(x > 0, x, 0.0),
}


def run(xp: Backend, function: Function, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with xp.scope():
        return xp.fetch(function(xp, xp.put(value)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ONE_ARRAY)
def test_results_are_numpys(cupy_backend: CupyBackend, name: str, dtype: np.dtype[Any]) -> None:
    # Numbers apart enough that log1p is defined and that every order is the same in each precision.
    value = (np.random.default_rng(1).permutation(20).reshape(4, 5) / 16 - 0.6).astype(dtype)
    found = run(cupy_backend, ONE_ARRAY[name], value)
    wanted = run(HOST, ONE_ARRAY[name], value.astype(np.float64))
    assert found.dtype == (dtype if wanted.dtype.kind == "f" else wanted.dtype)
    tolerance = 8 * precision(dtype)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["argsort descending", "matmul", "sort", "sum", "vecdot"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_are_exact(cupy_backend: CupyBackend, name: str, dtype: str) -> None:
    value = np.random.default_rng(2).integers(-4, 5, size=(4, 5)).astype(dtype)
    found, wanted = (run(xp, ONE_ARRAY[name], value) for xp in (cupy_backend, HOST))
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_sign_and_order_know_nan(cupy_backend: CupyBackend) -> None:
    value = np.asarray([[1, np.nan, -2, np.inf, 0]], dtype=np.float32)
    for name in ("sign", "sort", "argsort descending"):
        found, wanted = (run(xp, ONE_ARRAY[name], value) for xp in (cupy_backend, HOST))
        np.testing.assert_array_equal(found, wanted, err_msg=name)


# -- primitives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(257, 1031), (3, 64, 1031)])
def test_products_of_float32_are_not_rounded_to_tf32(
    cupy_backend: CupyBackend, shape: tuple[int, ...]
) -> None:
    a, b = numbers(*shape), numbers(*shape[:-2], shape[-1], 33, seed=1)
    found = cupy_backend.fetch(cupy_backend.matmul(cupy_backend.put(a), cupy_backend.put(b)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    # TF32 keeps 10 bits of each factor, and would err by some 1e-4 of the scale.
    assert np.max(np.abs(found - wanted) / scale) < 2e-6


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(cupy_backend: CupyBackend, groups: int, dtype: np.dtype[Any]) -> None:
    x, weight = numbers(2, 4, 9, 8, dtype=dtype), numbers(6, 4 // groups, 3, 2, dtype=dtype, seed=1)
    form: dict[str, Any] = {"strides": (2, 1), "pads": ((1, 0), (2, 1)), "dilations": (1, 2)}
    with cupy_backend.scope():
        found = cupy_backend.fetch(
            cupy_backend.convolution(
                cupy_backend.put(x), cupy_backend.put(weight), groups=groups, **form
            )
        )
    wide: list[Any] = [x.astype(np.float64), weight.astype(np.float64)]
    wanted: Any = HOST.convolution(*wide, groups=groups, **form)
    assert found.dtype == dtype
    tolerance = 8 * precision(dtype)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("primitive", ["window_max", "window_sum"])
def test_windows(cupy_backend: CupyBackend, primitive: str) -> None:
    def reduce(xp: Backend, x: Any) -> Any:
        return getattr(xp, primitive)(x, (3, 2), (2, 1), (1, 3))

    value = numbers(2, 3, 9, 8)
    wanted = run(HOST, reduce, value)
    np.testing.assert_allclose(run(cupy_backend, reduce, value), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("chosen", [True, False])
def test_cond(cupy_backend: CupyBackend, chosen: bool) -> None:
    predicate = cupy_backend.put(np.asarray([chosen]))
    assert cupy_backend.cond(predicate, lambda: "yes", lambda: "no") == ("yes" if chosen else "no")
