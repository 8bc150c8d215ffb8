"""Fused segments on CuPy: the same results as its own kernels and NumPy's, in fewer launches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.executable import Executable
from sardonyx.backends.numpy import HOST
from sardonyx.ops.reduction import ReduceMean

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(d) for d in ("float16", "float32", "float64", BFLOAT16)]
INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
Function = Callable[..., Sequence[Any]]


def _names(text: str) -> list[str]:
    return text.split()


OF_FLOATS = _names(
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor isfinite isinf isnan "
    "log log1p log2 negative reciprocal round sign signbit sin sinh sqrt square tan tanh trunc"
)
OF_TWO_FLOATS = _names(
    "add atan2 copysign divide equal floor_divide fmod greater greater_equal less less_equal "
    "logaddexp maximum minimum multiply not_equal pow remainder subtract"
)
OF_INTEGERS = _names("abs bitwise_invert negative sign square")
OF_TWO_INTEGERS = _names(
    "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor divide equal "
    "floor_divide fmod greater less maximum minimum multiply remainder subtract"
)


def fused(backend: CupyBackend, function: Function, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """Run a function of a backend as a fused segment; it must not run step by step."""
    reasons: list[str] = []
    placed = [backend.put(array) for array in arrays]
    executable: Executable = backend.bind(function, placed, reasons.append)
    results = [backend.fetch(result) for result in executable.run(*placed)]
    assert reasons == []
    return results


def on_host(function: Function, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    with HOST.scope():
        return [np.asarray(result) for result in function(HOST, *arrays)]


def assert_same(backend: CupyBackend, function: Function, *arrays: Any, units: float = 0) -> None:
    """Compare with NumPy's results, up to so many units in the last place."""
    found, expected = fused(backend, function, *arrays), on_host(function, *arrays)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other)
            continue
        wide = np.float64
        unit = float(ml_dtypes.finfo(one.dtype).eps)
        np.testing.assert_allclose(one.astype(wide), other.astype(wide), units * unit, units * unit)


def joined(xp: Any, arrays: Sequence[Any]) -> Any:
    """All in one array, so that few kernels are compiled."""
    return [
        xp.concat([xp.reshape(a, (-1,)) for a in arrays[i : i + 12]])
        for i in range(0, len(arrays), 12)
    ]


def of_each(names: Sequence[str]) -> Function:
    def function(xp: Any, *arrays: Any) -> Any:
        results = [getattr(xp, name)(*arrays) for name in names]
        kinds = dict.fromkeys(result.dtype for result in results)
        return [
            part
            for kind in kinds
            for part in joined(xp, [result for result in results if result.dtype == kind])
        ]

    return function


def some_floats(dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5]
    drawn = np.random.default_rng(seed).normal(size=30) * 3
    return np.random.default_rng(seed).permutation([*special, *drawn]).astype(dtype)


def some_integers(dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(seed).integers(max(limits.min, -9), 10, 34).astype(dtype)
    edges = np.array([limits.min, limits.max, limits.max - 1, 0, 1, 3], dtype)
    return np.random.default_rng(seed).permutation(np.concatenate([edges, drawn]))


# -- families of primitives -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_floats(cupy_backend: CupyBackend, dtype: np.dtype[Any]) -> None:
    x, y = some_floats(dtype, 0), some_floats(dtype, 1)
    # NumPy's backend has no error function of float16, whose squares overflow.
    names = [name for name in OF_FLOATS if name != "erf" or dtype != np.float16]
    assert_same(cupy_backend, of_each(names), x, units=6)
    assert_same(cupy_backend, of_each(OF_TWO_FLOATS), x, y, units=6)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_integers(cupy_backend: CupyBackend, dtype: np.dtype[Any]) -> None:
    x, y = some_integers(dtype, 0), some_integers(dtype, 1)
    assert_same(cupy_backend, of_each(OF_INTEGERS), x)
    assert_same(cupy_backend, of_each(OF_TWO_INTEGERS), x, y, units=1)


def test_functions_of_booleans(cupy_backend: CupyBackend) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    names = "add bitwise_and bitwise_or bitwise_xor equal greater less logical_and logical_or "
    names += "logical_xor maximum minimum multiply not_equal"
    assert_same(cupy_backend, of_each(names.split()), x, y)
    assert_same(cupy_backend, of_each(["logical_not", "bitwise_invert"]), x)


def test_operators_of_python(cupy_backend: CupyBackend) -> None:
    binary = _names("add and_ eq floordiv ge gt le lshift lt mod mul ne or_ rshift sub truediv xor")
    unary = _names("abs invert neg")

    def function(xp: Any, x: Any, y: Any) -> Any:
        several = [getattr(operator, name)(x, y) for name in binary]
        with_number = [getattr(operator, name)(x, 3) for name in binary]
        reflected = [getattr(operator, name)(3, y) for name in binary]
        single = [getattr(operator, name)(x) for name in unary]
        return [xp.astype(one, FLOATS[2]) for one in several + with_number + reflected + single]

    x, y = np.array([-4, -3, 0, 3, 7, 3]), np.array([2, 3, 3, 3, 1, 4])
    assert_same(cupy_backend, function, x, y, units=1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_means_of_integers(cupy_backend: CupyBackend, dtype: np.dtype[Any]) -> None:
    x = np.arange(12).astype(dtype).reshape(4, 3) - np.array(5).astype(dtype)
    assert_same(cupy_backend, lambda xp, x: [ReduceMean(xp, x, axes=(1,), keepdims=True)], x)


@pytest.mark.parametrize("count", [17, 40])
def test_concatenations_of_many_arrays(cupy_backend: CupyBackend, count: int) -> None:
    """The library would copy a list of their addresses to the device, which no graph may."""

    def function(xp: Any, x: Any, y: Any) -> Any:
        parts = [x[:, : i % 4] if i % 3 else y * i for i in range(count)]
        return [xp.concat(parts, axis=1), xp.stack([x] * count)]

    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(6).reshape(3, 2)
    assert_same(cupy_backend, function, x, y)
    assert set(cupy_backend.bind(function, [x, y], print).run.program.called) == set()


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, np.dtype(bool)], ids=str)
def test_casts(cupy_backend: CupyBackend, source: np.dtype[Any]) -> None:
    targets = [*FLOATS, *INTEGERS, np.dtype(bool)]
    x = np.array([0, 1, 2, 3, 100, 127], np.float64).astype(source)

    def cast(xp: Any, x: Any) -> Any:
        return [xp.astype(x, target) for target in targets if target != source]

    assert_same(cupy_backend, cast, x)


def test_casts_round_once(cupy_backend: CupyBackend) -> None:
    x = np.array([1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-40, 65519.999, 1e300, np.nan])
    integers = np.array([2**24 + 1, 2**31 - 1, 257 * 2**16 + 1], np.int32)
    narrow = [np.dtype(np.float16), BFLOAT16]
    assert_same(cupy_backend, lambda xp, x: [xp.astype(x, d) for d in narrow], x)
    assert_same(cupy_backend, lambda xp, x: [xp.astype(x, d) for d in narrow], integers)


def test_bits(cupy_backend: CupyBackend) -> None:
    x = some_floats(np.float32, 0)
    # Which of its bits NaN has in another type is left to the processor.
    numbers = np.where(np.isnan(x), np.float32(1), x)

    def bits(xp: Any, x: Any, numbers: Any) -> Any:
        half = xp.astype(numbers, np.dtype(np.float16))
        word = xp.bitcast(x, np.dtype(np.uint32))
        return [word >> 3, xp.bitcast(half, np.dtype(np.int16)), xp.bitcast(word, x.dtype)]

    assert_same(cupy_backend, bits, x, numbers)


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.int32), np.dtype(np.uint8)], ids=str)
@pytest.mark.parametrize("shape", [(6, 3), (5, 70), (3, 300), (2, 9000), (1, 40)], ids=str)
def test_reductions(
    cupy_backend: CupyBackend, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(0, 5, shape).astype(dtype)

    def reduce(xp: Any, x: Any) -> Any:
        names = ("sum", "max", "min", "any", "all")
        rows = [getattr(xp, name)(x, axis=-1) for name in names]
        columns = [getattr(xp, name)(x, axis=0, keepdims=True) for name in names]
        return [*rows, *columns, xp.mean(x, axis=(0, 1)), xp.prod(x[:, :3], axis=-1)]

    assert_same(cupy_backend, reduce, x, units=4)


def test_reductions_pass_nan_on(cupy_backend: CupyBackend) -> None:
    x = np.ones((3, 100), np.float32)
    x[1, 77] = np.nan
    assert_same(cupy_backend, lambda xp, x: [xp.max(x, axis=1), xp.min(x, axis=1)], x)


def test_forms(cupy_backend: CupyBackend) -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)

    def forms(xp: Any, x: Any) -> Any:
        y = x + 1
        return [
            xp.permute_dims(y, (2, 0, 1)) * 2,
            xp.flip(y, axis=(0, 2)) - y,
            xp.roll(y, 1, axis=1) + y,
            y[:, ::-2, 1:3] * 3,
            y[1, None, ..., -1] * 3,
            xp.concat([y, x[:, :1], y * 2], axis=1),
            xp.stack([y, x], axis=2) + 1,
            xp.tile(y, (2, 1, 3)) * 2,
            xp.repeat(y, 3, axis=1) - 1,
            xp.pad(y, [(1, 0), (0, 2), (1, 1)], 7) * 2,
            xp.moveaxis(y, 0, -1) + 1,
            xp.reshape(xp.permute_dims(y, (1, 0, 2)), (6, 4)) * xp.reshape(y, (6, 4)),
            xp.tril(y) + xp.triu(y, k=1),
            xp.broadcast_to(y[:, :1], (2, 3, 4)) + x,
            xp.where(x > 5, y, 0.5),
            xp.arange(3, 9, 2, dtype=np.dtype(np.int64))
            + xp.astype(y[0, :, 0], np.dtype(np.int64)),
            *xp.unstack(y, axis=1),
        ]

    assert_same(cupy_backend, forms, x)


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.int32)], ids=str)
def test_windows(cupy_backend: CupyBackend, dtype: np.dtype[Any]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 9, 8)).astype(dtype)

    def pooled(xp: Any, x: Any) -> Any:
        y = x + x
        return [
            xp.window_max(y, (3, 2), (2, 1), (1, 2)),
            xp.window_sum(xp.pad(y, [(0, 0), (0, 0), (1, 1), (0, 2)], 0), (2, 2), (1, 3), (1, 1)),
            xp.window_max(xp.exp(x), (3, 3), (1, 1), (1, 1)) if dtype.kind == "f" else y,
        ]

    assert_same(cupy_backend, pooled, x, units=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(cupy_backend: CupyBackend, dtype: np.dtype[Any], groups: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (2, 4, 7, 6)).astype(dtype)
    weight = rng.integers(-4, 5, (4, 4 // groups, 3, 2)).astype(dtype)

    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        layout = {"pads": [(1, 0), (2, 1)], "dilations": (2, 1), "groups": groups}
        y = xp.convolution(xp.maximum(x, 0), weight, strides=(2, 1), **layout)
        return [xp.maximum(y - 1, 0)]

    assert_same(cupy_backend, convolved, x, weight, units=1)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (2, 6, 4, 5)),
        ((1, 3, 4), (2, 1, 4, 5)),
        ((1, 2, 3, 4), (2, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((2, 50, 40), (30, 1, 40, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_products_of_matrices(
    cupy_backend: CupyBackend, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in (left, right))
    assert_same(cupy_backend, lambda xp, a, b: [xp.matmul(a + 1, b) * 2], a, b)


def test_computed_indices(cupy_backend: CupyBackend) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    indices = np.array([[0, -1], [3, 2]], np.int64)

    def indexed(xp: Any, x: Any, i: Any) -> Any:
        y = x * 2
        return [
            xp.take(y, i, axis=0) + 1,
            xp.take_along_axis(y, xp.astype(i, np.dtype(np.int32))[:, :1] * 0 + 1, axis=0),
            xp.gather(y, [i, i * 0 + 1]) - 1,
        ]

    assert_same(cupy_backend, indexed, x, indices)


def test_indices_out_of_range_read_the_nearest_element(cupy_backend: CupyBackend) -> None:
    x, indices = np.arange(4.0), np.array([-9, 9], np.int32)
    (found,) = fused(cupy_backend, lambda xp, x, i: [xp.take(x, i, axis=0) + 0], x, indices)
    np.testing.assert_array_equal(found, [0.0, 3.0])


def test_empty_arrays(cupy_backend: CupyBackend) -> None:
    x = np.zeros((0, 3), np.float32)
    y = np.ones((2, 3), np.float32)

    def empty(xp: Any, x: Any, y: Any) -> Any:
        return [x + 1, xp.sum(x, axis=0), xp.concat([x, y]) * 2, xp.sum(x), xp.tile(y, (0, 1))]

    assert_same(cupy_backend, empty, x, y)


# -- whole programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_functions(cupy_backend: CupyBackend, seed: int) -> None:
    """Chains with several readers, reductions, views and products, against NumPy."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 9)), int(rng.choice([3, 33, 130, 700]))
    choices = rng.integers(0, 10**6, (30, 3)).tolist()

    def function(xp: Any, *arrays: Any) -> Any:
        values = list(arrays)
        for kind, first, second in choices:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(_random_step(xp, kind % 11, a, b))
        return [values[i] for i in (-1, -2, -7, -13)]

    shape = (rows, columns)
    arrays = [rng.normal(size=size).astype(np.float32) for size in (shape, shape, columns)]
    arrays[2] = np.broadcast_to(arrays[2], shape).copy()
    found, expected = fused(cupy_backend, function, *arrays), on_host(function, *arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


def _random_step(xp: Any, kind: int, a: Any, b: Any) -> Any:
    """One step whose result has the operands' shape and moderate numbers."""
    rows, columns = a.shape
    total = xp.mean(a, axis=-1, keepdims=True)
    steps: list[Callable[[], Any]] = [
        lambda: (a + b) * 0.5,
        lambda: xp.tanh(a) - b * 0.25,
        lambda: xp.where(a > b, a, b),
        lambda: a - total,
        lambda: xp.exp(a - xp.max(a, axis=-1, keepdims=True)),
        lambda: b / (1 + xp.sqrt(xp.mean(xp.square(a), axis=-1, keepdims=True))),
        lambda: xp.flip(a, axis=1) + xp.roll(b, 1, axis=0),
        lambda: a + xp.max(b, axis=0, keepdims=True) * 0.1,
        lambda: xp.reshape(xp.permute_dims(a, (1, 0)), (rows, columns)),
        lambda: xp.matmul(a, xp.matmul(xp.matrix_transpose(b), a)) / (rows * columns),
        lambda: xp.concat([a[:, columns // 2 :], b[:, : columns // 2]], axis=1),
    ]
    return steps[kind]()


def test_the_same_numbers_as_step_by_step(cupy_backend: CupyBackend) -> None:
    """No product is joined with a sum: chains round as often as single steps."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=10000).astype(np.float32) for _ in range(2))

    def chain(xp: Any, x: Any, y: Any) -> Any:
        return [x * y + x - xp.exp(y) * x / (y * y + 1)]

    (found,) = fused(cupy_backend, chain, x, y)
    (single,) = chain(cupy_backend, cupy_backend.put(x), cupy_backend.put(y))
    np.testing.assert_array_equal(found, cupy_backend.fetch(single))


def test_arrays_that_are_not_contiguous(cupy_backend: CupyBackend) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    transposed: Any = cupy_backend.put(x.T.copy())
    function: Function = lambda xp, x: [x * 2]  # noqa: E731
    executable = cupy_backend.bind(function, [cupy_backend.put(x)], print)
    (result,) = executable.run(transposed.T)
    np.testing.assert_array_equal(cupy_backend.fetch(result), x * 2)


def test_results_have_arrays_of_their_own(cupy_backend: CupyBackend) -> None:
    """Writing to a constant that a call returned does not change the next call's."""
    function: Function = lambda xp, x: [xp.put(np.arange(3)), xp.tile(x, (1,))]  # noqa: E731
    x: Any = cupy_backend.put(np.ones(2))
    executable = cupy_backend.bind(function, [x], print)
    for result in executable.run(x):
        result[...] = 9
    again: Any = executable.run(x)
    np.testing.assert_array_equal(cupy_backend.fetch(again[0]), [0, 1, 2])
    np.testing.assert_array_equal(cupy_backend.fetch(x), [1, 1])


# -- what is not fused ----------------------------------------------------------------------------

LOOP = """<ir_version: 10, opset_import: ["": 22]>
g (float[3] x, int64 n) => (float[3] y) {
    yes = Constant<value = bool {1}>()
    r = Exp(x)
    s = Loop(n, yes, r) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] e) {
        d = Identity(c)  e = Add(a, x) }>
    y = Neg(s) }"""


def test_a_loop_is_one_call_between_kernels(cupy_backend: CupyBackend) -> None:
    model = sardonyx.load(parser.parse_model(LOOP), backend=cupy_backend)
    x = np.array([1, 2, 3], np.float32)
    for _ in range(3):
        result = np.asarray(cupy_backend.fetch(model(x, np.int64(4))))
        np.testing.assert_allclose(result, -(np.exp(x) + 4 * x), rtol=1e-6)
    assert model.stats().unfused == {}


def test_kernels_are_compiled_ahead_of_calls(cupy_backend: CupyBackend) -> None:
    from sardonyx.backends.cupy.compiled_kernels import kernel_of_cupys  # noqa: PLC0415

    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[n, 3] x) => (float[n, 3] y) { a = Sin(x) b = Add(a, x) y = Mul(b, b) }"""
    model = sardonyx.load(parser.parse_model(text), backend=cupy_backend)
    model.compile({"x": (17, 3)})
    compiled = kernel_of_cupys.cache_info().misses
    x = np.ones((17, 3), np.float32)
    for _ in range(2):
        np.testing.assert_allclose(model(x), np.square(np.sin(x) + x), rtol=1e-6)
    assert kernel_of_cupys.cache_info().misses == compiled


def test_what_cannot_be_traced_runs_step_by_step(cupy_backend: CupyBackend) -> None:
    reasons: list[str] = []

    def function(xp: Any, x: Any) -> Any:
        return [x * float(xp.fetch(x)[0])]

    x = cupy_backend.put(np.array([2.0, 3.0]))
    executable = cupy_backend.bind(function, [x], reasons.append)
    np.testing.assert_array_equal(cupy_backend.fetch(executable.run(x)[0]), [4.0, 6.0])
    assert reasons == ["NotFused: the shape of an array is unknown"]


NEAR = {
    "float32": ((512, 513), np.float32),
    "float16": ((2**18,), np.float16),
    "bfloat16": ((4, 2**17), BFLOAT16),
    "float64": ((2**18,), np.float64),
    "two to a thread": ((2**18 + 2,), np.float32),
    "odd": ((2**18 + 1,), np.float32),
}


@pytest.mark.parametrize("name", NEAR)
def test_neighbours_are_read_together(cupy_backend: CupyBackend, name: str) -> None:
    shape, dtype = NEAR[name]
    generator = np.random.default_rng(3)
    x, y = (generator.normal(size=shape).astype(dtype) for _ in range(2))

    def function(xp: Any, x: Any, y: Any) -> Any:
        row = y[..., :1]
        return [xp.abs(x) + y, x > y, xp.astype(x * row, np.dtype(np.int8))]

    assert_same(cupy_backend, function, x, y)


def test_arrays_at_any_address_are_read_together(cupy_backend: CupyBackend) -> None:
    size = 2**18
    values = np.arange(size + 1, dtype=np.float32)
    with cupy_backend.scope():
        view = cupy_backend.put(values)[1:]
        executable = cupy_backend.bind(lambda xp, x: [x * 2], [view], lambda reason: None)
        (result,) = executable.run(view)
    np.testing.assert_array_equal(cupy_backend.fetch(result), values[1:] * 2)
