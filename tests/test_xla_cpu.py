"""The forms that XLA compiles well for CPUs: the same results, derivatives and no detours."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from jax import lax

import sardonyx
from sardonyx.backends import windows
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu import packed, sorting
from sardonyx.backends.jax.xla_cpu.convolution import correlate, general_convolution
from sardonyx.backends.jax.xla_cpu.windows import pad_planes, window_reduce
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.program import written_out
from sardonyx.ops.fused_products import convolution_and_more
from sardonyx.ops.reduction import ReduceMax, ReduceMean, ReduceSum

# Shape of the input, of the filters, strides, pads, dilations, groups.
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plane": ((2, 8, 9, 7), (40, 8, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "uneven": ((1, 8, 9, 7), (40, 8, 3, 2), (2, 3), ((0, 2), (1, 0)), (2, 1), 1),
    "stem": ((1, 3, 16, 16), (32, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "few filters": ((1, 3, 12, 12), (16, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "single filter": ((1, 6, 12, 12), (1, 6, 5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
    "points": ((2, 8, 5, 5), (12, 8, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "strided points": ((2, 8, 5, 5), (12, 8, 1, 1), (2, 3), ((0, 0), (0, 0)), (1, 1), 1),
    "padded points": ((2, 8, 5, 5), (12, 8, 1, 1), (2, 2), ((1, 1), (0, 2)), (1, 1), 1),
    "tiles": ((2, 3, 9, 8), (20, 3, 4, 2), (4, 2), ((0, 0), (0, 0)), (1, 1), 1),
    "columns": ((1, 16, 4, 4), (64, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "depthwise": ((2, 24, 9, 9), (24, 1, 3, 3), (2, 1), ((1, 1), (1, 1)), (1, 2), 24),
    "multiplied": ((1, 6, 9, 9), (18, 1, 3, 3), (1, 1), ((1, 1), (0, 0)), (1, 1), 6),
    "narrow groups": ((1, 12, 9, 9), (8, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "few groups": ((1, 16, 9, 9), (32, 8, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    "many groups": ((1, 420, 5, 5), (70, 6, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 70),
    "wide depthwise": ((1, 66, 12, 12), (66, 1, 9, 9), (1, 1), ((4, 4), (4, 4)), (1, 1), 66),
    "line": ((2, 8, 30), (40, 8, 3), (2,), ((1, 1),), (1,), 1),
    "line by channel": ((2, 8, 30), (8, 1, 31), (1,), ((15, 15),), (1,), 8),
    "volume": ((1, 3, 6, 7, 8), (40, 3, 3, 3, 3), (2, 1, 1), ((1, 1),) * 3, (1, 2, 1), 1),
    "volume by channel": ((1, 8, 5, 5, 5), (8, 1, 3, 3, 3), (1,) * 3, ((1, 1),) * 3, (1,) * 3, 8),
    "four axes": ((1, 2, 4, 4, 4, 4), (5, 2, 2, 2, 2, 2), (1,) * 4, ((1, 0),) * 4, (1,) * 4, 1),
    "no samples": ((0, 8, 9, 7), (40, 8, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "no channels": ((1, 0, 9, 7), (4, 0, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "no filters": ((1, 4, 9, 7), (0, 4, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}
EPSILON = {np.float64: 1e-14, np.float32: 3e-6, np.float16: 3e-3, ml_dtypes.bfloat16: 3e-2}


def drawn(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def assert_close(actual: Any, expected: Any, epsilon: float) -> None:
    assert actual.shape == expected.shape
    expected = np.asarray(expected, np.float64)
    scale = np.abs(expected).max(initial=1.0, where=np.isfinite(expected))
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, atol=epsilon * scale)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", EPSILON, ids=lambda dtype: dtype.__name__)
def test_convolutions_of_every_form(name: str, dtype: Any) -> None:
    x_shape, weight_shape, *rest = CONVOLUTIONS[name]
    layout = ConvolutionLayout(*rest)
    x, weight = drawn(x_shape, dtype), drawn(weight_shape, dtype)
    wide = x.astype(np.float64), weight.astype(np.float64)
    expected = Backend.convolution(HOST, *wide, **layout._asdict())
    with jax.enable_x64(True):
        y = jax.jit(partial(correlate, layout=layout))(x, weight)
    assert y.dtype == dtype
    assert_close(y, expected, EPSILON[dtype])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if "no " not in name])
def test_convolutions_have_the_same_derivatives(name: str) -> None:
    x_shape, weight_shape, *rest = CONVOLUTIONS[name]
    layout = ConvolutionLayout(*rest)
    x, weight = drawn(x_shape), drawn(weight_shape)

    def slopes(function: Any) -> Any:
        def total(x: Any, weight: Any) -> Any:
            return jnp.sum(jnp.sin(function(x, weight, layout)))

        return jax.jit(jax.grad(total, argnums=(0, 1)))(x, weight)

    for actual, expected in zip(slopes(correlate), slopes(general_convolution), strict=True):
        assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize("name", ["plane", "points", "columns", "depthwise", "few groups", "tiles"])
@pytest.mark.sampled(4)
def test_convolutions_can_be_mapped(name: str) -> None:
    x_shape, weight_shape, *rest = CONVOLUTIONS[name]
    layout = ConvolutionLayout(*rest)
    x, weight = drawn((3, *x_shape)), drawn((3, *weight_shape))
    made = jax.vmap(partial(correlate, layout=layout))(x, weight)
    expected = np.stack(
        [general_convolution(*pair, layout) for pair in zip(x, weight, strict=True)]
    )
    assert_close(made, expected, 1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["few filters", "depthwise", "points", "columns"])
def test_what_is_no_number_stays_where_it_is(name: str, value: float) -> None:
    x_shape, weight_shape, *rest = CONVOLUTIONS[name]
    layout = ConvolutionLayout(*rest)
    x, weight = drawn(x_shape), drawn(weight_shape)
    x[0, 0, 2, 2] = value
    expected = np.asarray(general_convolution(x, weight, layout))
    made = np.asarray(jax.jit(partial(correlate, layout=layout))(x, weight))
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))


# -- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 3, 12), (1, 5, 10, 11), (1, 2, 9, 9, 9)], ids=str)
@pytest.mark.sampled(4)
def test_windows_of_every_side(shape: tuple[int, ...], side: int, dtype: Any) -> None:
    rank = len(shape) - 2
    window = ((side,) * rank, (2,) * rank, (1,) * rank)
    x = (10 * drawn(shape)).astype(dtype)
    lowest = dtype(-np.inf) if dtype != np.int8 else dtype(-128)
    made = jax.jit(lambda x: window_reduce(lax.max, x, lowest, *window))(x)
    np.testing.assert_array_equal(made, windows.reduced(np.maximum, x, *window))


def test_planes_are_padded_in_place() -> None:
    x, widths = drawn((2, 3, 4, 5)), [(0, 0), (0, 0), (1, 2), (3, 0)]
    np.testing.assert_array_equal(
        pad_planes(x, widths, -np.inf), np.pad(x, widths, constant_values=-np.inf)
    )


# -- weights that are turned once ------------------------------------------------------------------


def spec_of(array: np.ndarray[Any, Any]) -> Spec:
    return Spec(array.shape, array.dtype)


TURNED = {"plane", "stem", "few filters", "single filter", "padded points", "few groups"}
TURNED |= {"line", "volume", "four axes", "columns", "uneven", "no samples"}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", EPSILON, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_filters_are_turned_where_they_are_read_so(name: str, dtype: Any) -> None:
    x_shape, weight_shape, *rest = CONVOLUTIONS[name]
    layout = ConvolutionLayout(*rest)
    x, weight = drawn(x_shape, dtype), drawn(weight_shape, dtype)
    product = packed.convolution(spec_of(x), spec_of(weight), layout, epilogue=NOTHING)
    assert (product is not None) == (name in TURNED)
    if product is None:
        return
    turned = product.form.pack(weight)
    assert isinstance(turned, np.ndarray)
    assert spec_of(turned) == product.form.packed
    with jax.enable_x64(True):
        np.testing.assert_array_equal(product.form.pack(jnp.asarray(weight)), turned)
        y = jax.jit(product.run)(x, turned)
        expected = jax.jit(partial(correlate, layout=layout))(x, weight)
    assert_close(y, expected, EPSILON[dtype])


@pytest.mark.parametrize("dtype", EPSILON, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("columns", [128, 70])
@pytest.mark.parametrize("rows", [(1,), (1, 3), (16,), (2, 1, 9)], ids=str)
@pytest.mark.sampled(3)
def test_matrices_are_turned_for_any_number_of_rows(
    rows: tuple[int, ...], columns: int, is_transposed: bool, dtype: Any
) -> None:
    x, matrix = drawn((*rows, 40), dtype), drawn((40, columns), dtype)
    weight = matrix.T.copy() if is_transposed else matrix
    how: dict[str, Any] = {"is_transposed": is_transposed, "epilogue": NOTHING}
    product = packed.matrix_product(spec_of(x), spec_of(weight), **how)
    if product is None:
        assert is_transposed
        return
    turned = product.form.pack(weight)
    assert spec_of(turned) == product.form.packed
    with jax.enable_x64(True):
        np.testing.assert_array_equal(product.form.pack(jnp.asarray(weight)), turned)
        y = jax.jit(product.run)(x, turned)
    assert y.dtype == dtype
    assert_close(y, x.astype(np.float64) @ matrix.astype(np.float64), EPSILON[dtype])


@pytest.mark.parametrize("dtype", EPSILON, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("most", [1, 2 * 128 * 40, 2**30], ids=["blocks", "parts", "whole"])
@pytest.mark.parametrize("rows", [(2,), (1, 3), (2, 2)], ids=str)
@pytest.mark.sampled(3)
def test_numpy_multiplies_a_few_rows_one_by_one(
    rows: tuple[int, ...], most: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, and as a function that has made the parts of the matrix ahead of its calls."""
    monkeypatch.setattr(packed, "MOST_OF_PART", most)
    x, matrix = drawn((*rows, 40), dtype), drawn((40, 384), dtype)
    product = packed.matrix_product(
        spec_of(x), spec_of(matrix), is_transposed=False, epilogue=NOTHING
    )
    assert product is not None
    turned = product.form.pack(matrix)
    expected = x.astype(np.float64) @ matrix.astype(np.float64)
    stepped = product.run(x, turned)
    assert stepped.dtype == dtype
    assert_close(stepped, expected, EPSILON[dtype])
    specs = [spec_of(x), spec_of(turned)]
    function = written_out(
        lambda _, x, turned: [product.run(x, turned)], specs, 1, [spec_of(stepped)]
    )
    assert function is not None
    (found,) = function.run(lambda: False, pytest.fail, *function.ahead(turned), x)
    assert (found.shape, found.dtype) == (stepped.shape, dtype)
    assert_close(found, expected, EPSILON[dtype])


def test_what_follows_or_is_empty_is_left_to_others() -> None:
    rows, matrix = Spec((4, 8), np.dtype(np.float32)), Spec((8, 64), np.dtype(np.float32))
    follows = Epilogue(activation=Activation("relu"))
    how: dict[str, Any] = {"is_transposed": False}
    assert packed.matrix_product(rows, matrix, **how, epilogue=follows) is None
    nothing = rows._replace(shape=(0, 8))
    assert packed.matrix_product(nothing, matrix, **how, epilogue=NOTHING) is None


def test_weights_are_turned_once_and_anew_when_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without oneDNN: where it is, it has kernels of its own."""
    monkeypatch.setattr(onednn.loaded, "packed_form", lambda spec: None)
    filters, matrix = drawn((40, 8, 3, 3)), drawn((40, 64))
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        network (float[1, 8, 6, 6] x, float[40, 8, 3, 3] filters, float[40, 64] matrix)
            => (float[1, 64] y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, filters)
            b = Relu (a)
            c = GlobalAveragePool (b)
            d = Flatten (c)
            e = MatMul (d, matrix)
            y = Gelu (e)
        }"""
    )
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(weight, name)
        for name, weight in (("filters", filters), ("matrix", matrix))
    )
    del proto.graph.input[1:]
    x, expected = drawn((1, 8, 6, 6)), sardonyx.load(proto, backend="numpy")
    model = sardonyx.load(proto, backend="jax")
    assert_close(model(x), expected(x), 1e-5)
    listing = str(model.trace(x))
    assert re.search(r"Conv\(x, PackedWeight\(filters\)", listing), listing
    assert re.search(r"MatMul\(d, PackedWeight\(matrix\)", listing), listing
    for each in (model, expected):
        each.params["filters"] = 2 - filters
        each.params["matrix"] = 3 - matrix
    assert_close(model(x), expected(x), 1e-5)


# -- what is compiled -----------------------------------------------------------------------------


def compiled_network(xp: JaxBackend) -> str:
    """HLO of a stem, a pool, and blocks of all sorts of convolutions, each with a bias."""

    def convolved(x: Any, weight: Any, bias: Any, stride: int, groups: int) -> Any:
        around = weight.shape[2] // 2
        y = xp.convolution(
            x,
            weight,
            strides=(stride, stride),
            pads=((around, around), (around, around)),
            dilations=(1, 1),
            groups=groups,
        )
        return xp.maximum(y + xp.reshape(bias, (-1, 1, 1)), 0)

    def network(x: Any, weights: list[Any], biases: list[Any]) -> Any:
        layers = iter(zip(weights, biases, strict=True))
        x = convolved(x, *next(layers), 2, 1)
        x = xp.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], -np.inf)
        x = xp.window_max(x, (3, 3), (2, 2), (1, 1))
        y = convolved(x, *next(layers), 1, 1)
        y = convolved(y, *next(layers), 1, 64)
        return x + convolved(y, *next(layers), 1, 1)

    shapes = [(64, 3, 7, 7), (64, 64, 1, 1), (64, 1, 3, 3), (64, 64, 3, 3)]
    weights = [drawn(shape) for shape in shapes]
    biases = [drawn(shape[:1]) for shape in shapes]
    return str(jax.jit(network).lower(drawn((1, 3, 224, 224)), weights, biases).compile().as_text())


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="another platform has other forms")
def test_nothing_is_moved_between_convolutions() -> None:
    """Images come and go with their channels first; in between they lie with channels last."""
    text = compiled_network(JaxBackend())
    entry = text[text.index("ENTRY") :]
    images = re.findall(r"%\S+ = f32\[1,(\d+),(\d+),(\d+)\]\{3,2,1,0\} (\w+)", entry)
    last_channels = [image for image in images if image[2] in ("64", "3")]
    assert len(last_channels) >= 5
    first_channels = [image for image in images if image[0] == "64"]
    assert len(first_channels) == 1  # The result.


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="another platform has other forms")
def test_nothing_is_moved_before_a_mean_of_planes() -> None:
    """As in a squeeze-and-excitation block, which reads the activated planes twice."""
    xp = JaxBackend()
    layout = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 8}
    swish = Epilogue(has_bias=True, activation=Activation("swish", 1.0))

    @jax.jit
    def block(x: Any, filters: Any, bias: Any, points: Any) -> Any:
        y = convolution_and_more(xp, x, filters, bias, epilogue=swish, **layout)
        gate = ReduceMean(xp, y, (2, 3))
        pointwise = {**layout, "pads": ((0, 0), (0, 0)), "groups": 1}
        return ReduceMean(xp, xp.convolution(y * gate, points, **pointwise), (2, 3))

    arguments = [drawn(shape) for shape in ((1, 8, 12, 10), (8, 1, 3, 3), (8,), (4, 8, 1, 1))]
    entry = str(block.lower(*arguments).compile().as_text())
    entry = entry[entry.index("ENTRY") :].partition("\n")[2]
    assert not re.findall(r"f32\[1,8,1[02],1[02]\]\{3,2,1,0\} (?!parameter)", entry)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 6, 2, 3, 4), (2, 3, 0, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("reduce", [ReduceSum, ReduceMean, ReduceMax], ids=["sum", "mean", "max"])
def test_reductions_of_planes(reduce: Any, shape: tuple[int, ...], keepdims: int) -> None:
    if reduce is ReduceMax and 0 in shape:
        pytest.skip("there is no largest of no elements")
    x, axes = drawn(shape), tuple(range(2, len(shape)))
    for each in (axes, tuple(axis - len(shape) for axis in reversed(axes))):
        assert_close(
            reduce(JaxBackend(), jnp.asarray(x), each, keepdims=keepdims),
            reduce(HOST, x, each, keepdims=keepdims),
            1e-6,
        )


def test_a_depthwise_convolution_computes_its_input_once() -> None:
    layout = ConvolutionLayout((1, 1), ((1, 1), (1, 1)), (1, 1), 16)
    weight = drawn((16, 1, 3, 3))

    @jax.jit
    def convolved(x: Any) -> Any:
        return correlate(lax.round(x.astype(np.float32)), weight, layout)

    text = convolved.lower(np.ones((1, 16, 12, 12), np.uint8)).compile().as_text()
    assert text.count(" convert(") == text.count(" round-nearest-afz(") == 1


# -- sorting --------------------------------------------------------------------------------------

FLOATS = np.array([0, 1, -1, np.nan, np.inf, -np.inf, 2.5, -1e-40, 3e38], np.float32)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
)
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40), 1), ((40, 3), 0), ((2, 5, 7), 1), ((2, 0), 1)]
)
def test_the_largest_are_those_of_the_general_form(
    dtype: str, shape: tuple[int, ...], axis: int
) -> None:
    if "int" in dtype:
        limits = np.iinfo(dtype)
        numbers = [limits.min, limits.max, 0, 1, limits.max // 2 + 1]
        values = np.array(numbers, dtype)
    else:
        with np.errstate(over="ignore"):
            values = FLOATS.astype(dtype)
    x = np.random.default_rng(0).choice(values, shape)
    with jax.enable_x64(True):
        for k in {0, min(1, shape[axis]), shape[axis]}:
            expected = sorting.general_top_k(x, k, axis)
            for places in (sorting.top_k, jax.jit(sorting.top_k, static_argnums=(1, 2))):
                actual = places(jnp.asarray(x), k, axis)
                assert actual.dtype == np.int64
                np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("dtype", "k", "form"),
    [(np.float32, 40, "sort"), (np.float32, 4, "top_k"), (np.int32, 4, "sort")],
)
def test_xla_sorts_single_integers(dtype: Any, k: int, form: str) -> None:
    with jax.enable_x64(True):
        text = jax.jit(sorting.top_k, static_argnums=(1, 2)).lower(np.ones(40, dtype), k, 0)
        sorts = re.findall(r"= (\S+) sort\(", text.compile().as_text())
    assert [each.partition("[")[0] for each in sorts] == (["s64"] if form == "sort" else [])
