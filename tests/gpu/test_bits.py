"""Types that CuPy lacks: arrays of their bytes, with NumPy's results to the last bit.

Floats beyond the range of an integer type become the nearest integer, as on JAX: NumPy leaves these
to the processor.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import sardonyx
from sardonyx.backends import backend_of
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.fusion.narrow_types import NARROW
from sardonyx.backends.interpreter import Interpreter
from sardonyx.ops.casting import BitCast, Cast
from sardonyx.ops.quantization import DequantizeLinear, QuantizeLinear
from tests.support.casts import DTYPES, values, words

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

TYPES = sorted(NARROW, key=str)
FLOAT8 = np.dtype(ml_dtypes.float8_e5m2)
INT4 = np.dtype(ml_dtypes.int4)
FLOAT32 = np.dtype(np.float32)
# NumPy, whose casts of floats to integers are JAX's.
NUMPY = Interpreter(lambda: False)
# Fused, and step by step.
FORMS = ["fused", "plain"]

Function = Callable[..., Sequence[Any]]


def every(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """All elements that a type has."""
    is_integer = isdtype(dtype, "integral")
    bits = int((ml_dtypes.iinfo if is_integer else ml_dtypes.finfo)(dtype).bits)
    return np.arange(2**bits, dtype=np.uint8).view(dtype)


def on_device(backend: CupyBackend, form: str, function: Function, *arrays: Any) -> list[Any]:
    placed = [backend.put(array) for array in arrays]
    with backend.scope():
        if form == "plain":
            return [backend.fetch(result) for result in function(backend, *placed)]
        reasons: list[str] = []
        executable = backend.bind(function, placed, reasons.append)
        results = [backend.fetch(result) for result in executable.run(*placed)]
    assert reasons == []
    return results


def assert_same(
    backend: CupyBackend, form: str, function: Function, *arrays: Any, moves: bool = False
) -> None:
    """Compare every bit with NumPy's results; if elements are not just moved, all NaN are equal."""
    found = on_device(backend, form, function, *arrays)
    with NUMPY.scope():
        expected = [np.asarray(result) for result in function(NUMPY, *arrays)]
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), i
        bits = (lambda x: x.view(np.uint8)) if moves and other.dtype in NARROW else words
        np.testing.assert_array_equal(bits(one), bits(other), err_msg=str(i))


# -- the array ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 1, 4)], ids=str)
def test_what_is_put_is_fetched(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    value = np.resize(every(dtype)[::-1], shape).astype(dtype)
    array: Any = cupy_backend.put(value)
    assert cupy_backend.owns(array)
    assert cupy_backend.spec(array) == (shape, dtype)
    assert cupy_backend.nbytes(array) == array.nbytes == array.size == value.size
    assert (array.shape, array.ndim, array.dtype) == (shape, len(shape), dtype)
    for fetched in (cupy_backend.fetch(array), array.get(), np.asarray(array)):
        assert (fetched.dtype, fetched.shape) == (dtype, shape)
        np.testing.assert_array_equal(fetched.view(np.uint8), value.view(np.uint8))


def test_an_array_of_the_host_may_have_any_strides(cupy_backend: CupyBackend) -> None:
    value = every(INT4).reshape(4, 4)
    for view in (value.T, value[::-2, 1:3], np.broadcast_to(value[0], (3, 4))):
        np.testing.assert_array_equal(cupy_backend.fetch(cupy_backend.put(view)), view)


def test_the_array_as_a_user_sees_it(cupy_backend: CupyBackend) -> None:
    value = every(FLOAT8)[:6].reshape(2, 3)
    array: Any = cupy_backend.put(value)
    assert repr(array) == "<Bits of float8_e5m2 (2, 3) on CUDA device 0>"
    assert (len(array), array.itemsize, array.strides) == (2, 1, (3, 1))
    assert array.bits.dtype == np.uint8
    np.testing.assert_array_equal(array.bits.get(), value.view(np.uint8))
    np.testing.assert_array_equal(np.asarray(array, dtype=np.float32), value.astype(np.float32))
    np.testing.assert_array_equal(array.astype(np.float64).get(), value.astype(np.float64))
    assert array.astype(FLOAT8) is not array
    assert array.astype(FLOAT8, copy=False) is array
    assert [row.get().tolist() for row in array] == value.tolist()
    assert float(array[1, 2]) == float(value[1, 2])
    copy = array.copy()
    copy[0] = 1.0
    copy[1, 1:] = array[0, :2]
    assert copy.get().astype(float).tolist()[0] == [1, 1, 1]
    np.testing.assert_array_equal(array.get(), value)
    restored = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(restored.get(), value)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(array, copy=False)
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


def test_an_array_is_made_of_bytes_and_a_type(cupy_backend: CupyBackend) -> None:
    cupy = pytest.importorskip("cupy")
    kind: Any = type(cupy_backend.put(every(INT4)))
    data = cupy.arange(16, dtype=np.uint8)
    np.testing.assert_array_equal(kind(data, ml_dtypes.int4).get(), every(INT4))
    with pytest.raises(TypeError, match="CuPy has arrays of float16 itself"):
        kind(data, np.float16)
    with pytest.raises(TypeError, match="a CuPy array of uint8"):
        kind(data.astype(np.int8), INT4)
    with pytest.raises(TypeError, match="a CuPy array of uint8"):
        kind(data.get(), INT4)


def test_operators_compute_with_the_numbers(cupy_backend: CupyBackend) -> None:
    left, right = every(INT4)[1:], every(INT4)[:0:-1]
    a, b = cupy_backend.put(left), cupy_backend.put(right)
    for found, expected in (
        (a + b, left + right),
        (a - b, left - right),
        (2 * a, 2 * left),
        (-a, -left),
        (a < b, left < right),
        (a == 3, left == 3),
    ):
        assert cupy_backend.spec(found) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(cupy_backend.fetch(found), expected)


# -- conversions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_number_goes_to_every_type(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], form: str
) -> None:
    def cast(xp: Any, x: Any) -> Any:
        return [Cast(xp, x, to=to, saturate=s) for to in (*DTYPES, *TYPES) for s in (0, 1)]

    assert_same(cupy_backend, form, cast, every(dtype))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", [d for d in DTYPES if d not in NARROW], ids=str)
def test_every_type_goes_to_narrow_types(
    cupy_backend: CupyBackend, source: np.dtype[Any], form: str
) -> None:
    """Ties, ends, subnormal numbers, infinities, NaN, zeros of both signs."""
    short = {"float16", "bfloat16"}
    x = np.arange(2**16, dtype=np.uint16).view(source) if source.name in short else values(source)
    if source != FLOAT32 and isdtype(source, "real floating"):
        # For NaN, types without it have a zero of its sign, which a GPU loses in float32.
        x = np.where(np.isnan(x), np.abs(x), x)

    def cast(xp: Any, x: Any) -> Any:
        return [Cast(xp, x, to=to, saturate=s) for to in TYPES for s in (0, 1)]

    assert_same(cupy_backend, form, cast, x)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_as_told(
    cupy_backend: CupyBackend, round_mode: str, form: str
) -> None:
    to = np.dtype(ml_dtypes.float8_e8m0fnu)

    def cast(xp: Any, x: Any) -> Any:
        return [Cast(xp, x, to=to, saturate=s, round_mode=round_mode) for s in (0, 1)]

    assert_same(cupy_backend, form, cast, values(FLOAT32))


def test_any_float32_is_rounded_as_on_numpy(cupy_backend: CupyBackend) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 2**18, np.uint64).astype(np.uint32)
    floats = [dtype for dtype in TYPES if isdtype(dtype, "real floating")]

    def cast(xp: Any, x: Any) -> Any:
        return [xp.astype(x, to) for to in floats]

    for form in FORMS:
        assert_same(cupy_backend, form, cast, bits.view(np.float32))


@pytest.mark.parametrize("form", FORMS)
def test_bits_become_other_types(cupy_backend: CupyBackend, form: str) -> None:
    eight, four = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float4_e2m1fn)

    def cast(xp: Any, x: Any, y: Any) -> Any:
        byte = BitCast(xp, x, to=np.dtype(np.int8))
        return [byte, BitCast(xp, byte, to=eight), BitCast(xp, y, to=four)]

    assert_same(cupy_backend, form, cast, every(FLOAT8), every(INT4), moves=True)


# -- functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_moved_elements_keep_every_bit(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], form: str
) -> None:
    x = every(dtype) if len(every(dtype)) > 4 else np.tile(every(dtype), 4)
    x = x.reshape(4, -1)
    one = x[1, 1]

    def move(xp: Any, x: Any, i: Any, mask: Any) -> Any:
        filling = xp.put(np.asarray(one))
        return [
            xp.permute_dims(x, (1, 0)),
            xp.reshape(xp.permute_dims(x, (1, 0)), x.shape),
            x[::-2, 1:3],
            xp.flip(x, axis=0),
            xp.roll(x, 1, axis=1),
            xp.concat([x, x[:1]], axis=0),
            xp.stack([x, x], axis=1),
            xp.tile(x, (2, 1)),
            xp.repeat(x, 2, axis=1),
            xp.broadcast_to(x[:1], x.shape),
            xp.broadcast_arrays(x, x[:1])[1],
            xp.expand_dims(x, axis=1),
            xp.squeeze(x[:1], 0),
            xp.moveaxis(x, 0, 1),
            xp.pad(x, [(1, 0), (0, 2)], filling),
            xp.take(x, i, axis=0),
            xp.take_along_axis(x, xp.reshape(i, (-1, 1)), axis=0),
            xp.gather(x, [i, i]),
            xp.where(mask, x, filling),
            xp.where(mask, x, x[::-1]),
            xp.full((2, 3), np.asarray(one)),
            xp.full_like(x, np.asarray(one)),
            xp.zeros_like(x),
            xp.zeros((2,), dtype=x.dtype),
            xp.asarray(x, copy=True),
            *xp.unstack(x, axis=0),
        ]

    mask = np.arange(x.size).reshape(x.shape) % 3 == 0
    assert_same(cupy_backend, form, move, x, np.array([3, 0, 2]), mask, moves=True)


def test_elements_are_scattered(cupy_backend: CupyBackend) -> None:
    def scatter(xp: Any, x: Any, i: Any, updates: Any) -> Any:
        return [xp.scatter(x, [i], updates)]

    x = every(INT4).reshape(8, 2)
    assert_same(cupy_backend, "plain", scatter, x, np.array([7, -5]), x[:2], moves=True)


def test_scattered_elements_are_combined(cupy_backend: CupyBackend) -> None:
    x, i = every(FLOAT8).reshape(-1, 2), np.array([1, 1, 3])

    def add(xp: Any, x: Any, i: Any) -> Any:
        return [xp.scatter(x, [i], x[16:19], "add"), xp.scatter(x, [i], x[16:19], "max")]

    assert_same(cupy_backend, "plain", add, x, i)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_functions_compute_with_the_numbers(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], form: str
) -> None:
    def compute(xp: Any, x: Any, y: Any) -> Any:
        compared = [xp.equal(x, y), xp.less(x, y), xp.not_equal(x, y), xp.greater_equal(x, y)]
        if not isdtype(dtype, "real floating"):
            return compared
        tested = [xp.isnan(x), xp.isinf(x), xp.isfinite(x), xp.signbit(x)]
        if dtype.name == "float8_e8m0fnu":
            # CuPy's kernels flush the least of its numbers, which is subnormal in float32.
            return [*compared, *tested]
        return [*compared, *tested, xp.add(x, y), xp.multiply(x, y), xp.subtract(y, x)]

    x = every(dtype)
    assert_same(cupy_backend, form, compute, x, np.roll(x, 5))


@pytest.mark.parametrize("form", FORMS)
def test_reductions_and_orders(cupy_backend: CupyBackend, form: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 9)).astype(ml_dtypes.float8_e4m3fn)

    def compute(xp: Any, x: Any) -> Any:
        ordered = [xp.argsort(x, axis=1), xp.argmax(x, axis=0), xp.sort(x, axis=0)]
        total = [xp.sum(x, axis=0), xp.mean(x, axis=1), xp.round(x), xp.any(x, axis=0)]
        return [xp.max(x, axis=1), xp.min(x), *total, *ordered, *_rectangular(xp, x)]

    assert_same(cupy_backend, form, compute, x)


def _rectangular(xp: Any, x: Any) -> list[Any]:
    wide = xp.astype(x, FLOAT32)
    return [xp.tril(x), xp.triu(x, k=1), xp.where(x > wide, x, wide), xp.concat([x, wide])]


def test_places_of_nonzero_elements(cupy_backend: CupyBackend) -> None:
    def find(xp: Any, x: Any) -> Any:
        return xp.nonzero(x)

    assert_same(cupy_backend, "plain", find, every(FLOAT8).reshape(2, -1))


@pytest.mark.parametrize("form", FORMS)
def test_empty_arrays(cupy_backend: CupyBackend, form: str) -> None:
    def empty(xp: Any, x: Any) -> Any:
        wide = Cast(xp, x, to=FLOAT32)
        return [wide, Cast(xp, wide, to=FLOAT8), xp.permute_dims(x, (1, 0)), xp.concat([x, x])]

    assert_same(cupy_backend, form, empty, np.zeros((0, 3), INT4))


# -- quantized weights ----------------------------------------------------------------------------


QUANTIZED = ["float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "int2", "int4", "uint2", "uint4"]


@pytest.mark.parametrize("granularity", [(), (6,), (3, 6)], ids=["tensor", "axis", "blocks"])
@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_are_dequantized_in_one_kernel(
    cupy_backend: CupyBackend, name: str, granularity: tuple[int, ...]
) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    rng = np.random.default_rng(0)
    finite = every(dtype)[np.isfinite(every(dtype).astype(np.float32))]
    weight, zero = (rng.choice(finite, shape) for shape in ((12, 6), granularity))
    zero = np.asarray(zero).astype(dtype)
    scale = np.asarray(rng.uniform(0.5, 2, granularity), np.float32)
    options = {"axis": 0, "block_size": 4} if len(granularity) == 2 else {"axis": 1}

    def there(xp: Any, weight: Any, scale: Any, zero: Any) -> Any:
        return [DequantizeLinear(xp, weight, scale, zero, **options)]

    def back(xp: Any, x: Any, scale: Any, zero: Any) -> Any:
        return [QuantizeLinear(xp, x, scale, zero, **options)]

    x = rng.normal(size=(12, 6)).astype(np.float32) * 4
    for function, array in ((there, weight), (back, x)):
        assert_same(cupy_backend, "fused", function, array, scale, zero)
        assert kernels(cupy_backend, function, array, scale, zero) == 1


def kernels(backend: CupyBackend, function: Function, *arrays: Any) -> int:
    placed = [backend.put(array) for array in arrays]
    run: Any = backend.bind(function, placed, lambda reason: None).run
    return len(run.program.kernels)


def test_large_weights_are_dequantized_with_neighbours_together(cupy_backend: CupyBackend) -> None:
    weight = np.resize(every(INT4), (512, 520))
    scale = np.random.default_rng(0).uniform(0.5, 2, 520).astype(np.float32)

    def dequantized(xp: Any, weight: Any, scale: Any) -> Any:
        return [DequantizeLinear(xp, weight, scale, axis=1), xp.flip(weight, axis=0)]

    assert_same(cupy_backend, "fused", dequantized, weight, scale)


# -- models ---------------------------------------------------------------------------------------


def test_a_model_returns_such_arrays_and_takes_them_back(cupy_backend: CupyBackend) -> None:
    forth = sardonyx.load(_casting("FLOAT", "FLOAT8E5M2"), backend=cupy_backend)
    back = sardonyx.load(_casting("FLOAT8E5M2", "FLOAT"), backend=cupy_backend)
    value = np.array([1.1, -300, np.inf, 1e9], np.float32)
    expected = value.astype(FLOAT8)
    expected[3] = ml_dtypes.finfo(FLOAT8).max
    for _ in range(3):
        bits = forth(cupy_backend.put(value))
        assert backend_of(bits) is backend_of(cupy_backend.put(value))
        np.testing.assert_array_equal(bits.get()[[0, 1, 3]], expected[[0, 1, 3]])
        wide = back(bits)
        assert isinstance(wide, type(cupy_backend.put(value)))
        np.testing.assert_array_equal(wide.get(), bits.get().astype(np.float32))
        np.testing.assert_array_equal(back(bits.get()), wide.get())
    assert back.stats().unfused == {}


def test_another_backend_takes_such_arrays(cupy_backend: CupyBackend) -> None:
    bits: Any = cupy_backend.put(every(FLOAT8))
    expected = bits.get().astype(np.float32)
    for name in ("numpy", "jax"):
        model = sardonyx.load(_casting("FLOAT8E5M2", "FLOAT"), backend=name)
        # Results go with the arguments, so they are CuPy's.
        np.testing.assert_array_equal(cupy_backend.fetch(model(bits)), expected)


def test_a_wrong_type_is_named(cupy_backend: CupyBackend) -> None:
    model = sardonyx.load(_casting("FLOAT8E5M2", "FLOAT"), backend=cupy_backend)
    with pytest.raises(sardonyx.InvalidInput, match="must be float8_e5m2, but is int4"):
        model(cupy_backend.put(every(INT4)))


def test_single_operators_take_such_arrays(cupy_backend: CupyBackend) -> None:
    bits: Any = cupy_backend.put(every(INT4))
    found = sardonyx.run_op("Transpose", bits[None], perm=[1, 0])
    assert (found.shape, found.dtype) == ((16, 1), INT4)
    np.testing.assert_array_equal(found.get()[:, 0], every(INT4))


def test_a_loop_carries_such_arrays(cupy_backend: CupyBackend) -> None:
    model = parser.parse_model("""
        <ir_version: 11, opset_import: ["" : 24]>
        loop (int64 count, float8e5m2[4] start, float[4] step) => (float8e5m2[4] last)
        <bool always = {1}>
        {
            last = Loop (count, always, start) <body = body (int64 i, bool go, float8e5m2[4] x)
                => (bool again, float8e5m2[4] y)
            {
                again = Identity (go)
                wide = Cast <to = 1> (x)
                more = Add (wide, step)
                y = Cast <to = 19> (more)
            }>
        }
    """)
    arrays = np.int64(5), np.zeros(4, FLOAT8), np.array([0.3, 1, -2, 9], np.float32)
    expected = sardonyx.load(model, backend="numpy")(*arrays)
    found = sardonyx.load(model, backend=cupy_backend)(*arrays)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_weights_of_four_bits(cupy_backend: CupyBackend) -> None:
    weight = helper.make_tensor("w", TensorProto.INT4, [4, 2], range(-4, 4))
    scale = helper.make_tensor("s", TensorProto.FLOAT, [2], [0.5, 2])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    graph = helper.make_graph(nodes, "weights", [x], [y], [weight, scale])
    opsets = [helper.make_opsetid("", 24)]
    proto = helper.make_model(graph, ir_version=11, opset_imports=opsets)
    value = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = sardonyx.load(proto, backend=cupy_backend)
    for _ in range(3):
        expected = value @ (np.arange(-4, 4).reshape(4, 2) * np.array([0.5, 2]))
        np.testing.assert_array_equal(model(value), expected.astype(np.float32))


def _casting(source: str, to: str) -> Any:
    """A model of one Cast."""
    x = helper.make_tensor_value_info("x", TensorProto.DataType.Value(source), ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.DataType.Value(to), ["n"])
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DataType.Value(to))
    graph = helper.make_graph([node], "cast", [x], [y])
    return helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 24)])
