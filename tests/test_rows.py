"""Softmax and normalization of the first tier's rows by kernels, instead of several passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.onednn import HostKernels, loaded, rows
from sardonyx.ops.activation import Softmax, softmax_or_zero
from sardonyx.ops.normalization import LayerNormalization, RMSNormalization
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.test_onednn import drawn

pytestmark = NEEDS_ONEDNN

SHAPES = [(64, 33), (5, 8), (3, 1), (1, 7), (2, 3, 4, 16), (2, 3, 40, 197), (300, 768), (2, 5000)]
INF, NAN = np.inf, np.nan
# Rows with less than a number for each lane of a register, and with more.
SPECIAL = [
    [INF, 1, 2],
    [-INF, -INF, -INF],
    [-INF, 0, 1],
    [3.4e38, -3.4e38, 1],
    [NAN, INF, 1],
    [0, 0, NAN],
    [-1e-40, 0, 1e-40],
    [88, -88, -200],
    [-200, -100, -103],
]


@pytest.fixture(autouse=True)
def kernels_are_loaded() -> None:
    assert loaded.shared_library() is not None


@pytest.fixture(params=[True, False], ids=["kernel", "NumPy"])
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(rows, "MOST_COLUMNS", -1)


def exact_softmax(x: Any) -> Any:
    with np.errstate(all="ignore"):
        weights = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_softmax_is_that_of_numpy(shape: tuple[int, ...], threads: int) -> None:
    x = drawn(*shape) * 20
    y = rows.softmax(x, threads=threads)
    assert (y.shape, y.dtype) == (x.shape, np.float32)
    assert_allclose(y, exact_softmax(x), rtol=1e-5, atol=1e-37)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("repeated", [1, 4, 9])
@pytest.mark.parametrize("row", SPECIAL, ids=str)
def test_what_is_not_finite(row: list[float], repeated: int) -> None:
    x = np.tile(np.array(row, np.float32), (3, repeated))
    expected = exact_softmax(x)
    with np.errstate(all="ignore"):
        assert_allclose(rows.softmax(x), expected, rtol=1e-5, atol=1e-37)
        weights = rows.softmax(x, or_zero=True)
    assert_allclose(weights, np.nan_to_num(expected, nan=0), rtol=1e-5, atol=1e-37)


def test_each_row_by_itself() -> None:
    x = drawn(40, 50)
    x[7, 49], x[9, 0], x[11] = np.nan, np.inf, -np.inf
    y = rows.softmax(x, or_zero=True)
    empty = [7, 9, 11]
    assert not y[empty].any()
    assert_allclose(np.delete(y, empty, 0), exact_softmax(np.delete(x, empty, 0)), rtol=1e-5)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normalized_rows(shape: tuple[int, ...], axes: int, threads: int) -> None:
    x, (scale, bias) = drawn(1, *shape) * 3 + 5, drawn(2, *shape[-axes:])
    own, wide = tuple(range(-axes, 0)), x.astype(np.float64)
    mean = wide.mean(axis=own, keepdims=True)
    inverse = 1 / np.sqrt(wide.var(axis=own, keepdims=True) + 1e-3)
    options: dict[str, Any] = {"epsilon": 1e-3, "threads": threads}
    y, means, inverses = rows.standardized(x, scale, bias, **options)
    tolerances = {"rtol": 1e-4, "atol": 1e-5}
    assert_allclose(y, (wide - mean) * inverse * scale + bias, **tolerances)
    assert_allclose(means, mean, **tolerances)
    assert_allclose(inverses, inverse, **tolerances)
    y, _, _ = rows.standardized(x, scale, None, **options)
    assert_allclose(y, (wide - mean) * inverse * scale, **tolerances)
    root = np.sqrt(np.square(wide).mean(axis=own, keepdims=True) + 1e-3)
    assert_allclose(
        rows.by_root_mean_square(x, scale, **options), wide / root * scale, **tolerances
    )


@pytest.mark.parametrize(
    "turned", [lambda x: x.T, lambda x: x[::-2, ::-3], lambda x: np.broadcast_to(x[:1], x.shape)]
)
def test_however_arrays_lie(turned: Any) -> None:
    x = turned(drawn(60, 70))
    scale = drawn(2 * x.shape[1])[::2]
    assert_allclose(rows.softmax(x), exact_softmax(x), rtol=1e-5)
    y, _, _ = rows.standardized(x, scale, None, epsilon=1e-5)
    expected, _, _ = rows.standardized(x.copy(), scale.copy(), None, epsilon=1e-5)
    assert_allclose(y, expected)


def test_long_rows_keep_their_digits() -> None:
    x = np.zeros((2, rows.MOST_COLUMNS), np.float32)
    assert_allclose(rows.softmax(x) * x.shape[1], 1, rtol=1e-6)
    x = np.zeros((2, 2**22), np.float32)
    assert_allclose(rows.softmax(x) * x.shape[1], 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ops_compute_the_same_with_kernels(dtype: Any) -> None:
    """Those in other types, along other axes or with other scales do not take them."""
    with_kernels = Interpreter(lambda: False, HostKernels())
    without = Interpreter(lambda: False)
    x, row, all_of_them = (drawn(*s).astype(dtype) for s in [(4, 6, 40), (40,), (1, 40)])
    tolerances = {"rtol": 2e-3 if dtype == np.float16 else 1e-4, "atol": 1e-4}
    calls: list[Any] = [lambda xp, axis=axis: Softmax(xp, x, axis=axis) for axis in (0, 1, -1)]
    calls += [
        lambda xp: softmax_or_zero(xp, x),
        lambda xp: LayerNormalization(xp, x, row, row),
        lambda xp: LayerNormalization(xp, x, all_of_them, None),
        lambda xp: LayerNormalization(xp, x, x[0], x[0], axis=1, epsilon=1e-2),
        lambda xp: RMSNormalization(xp, x, row),
        lambda xp: RMSNormalization(xp, x, all_of_them, epsilon=1e-2),
        lambda xp: Softmax(xp, x[:0]),
        lambda xp: LayerNormalization(xp, x[:0], row, row),
    ]
    for call in calls:
        found, expected = (call(xp) for xp in (with_kernels, without))
        several = found if isinstance(found, tuple) else (found,)
        others = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(several, others, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert_allclose(one, other, **tolerances)


def attention(*, axis: int = -1, zero: float = 0.0) -> onnx.ModelProto:
    """Weights as torch writes them, beside a product that asks for kernels."""
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=axis),
        node("IsNaN", ["weights"], ["is_nan"]),
        node("Where", ["is_nan", "zero", "weights"], ["kept"]),
        node("MatMul", ["kept", "w"], ["y"]),
    ]
    weights = [weight("w", drawn(64, 64)), weight("zero", np.float32(zero))]
    inputs = [value("x", ["n", 64]), value("mask", ["n", 64])]
    return model(nodes, inputs, ["y"], weights)


def masked() -> Any:
    mask = np.zeros((48, 64), np.float32)
    mask[3], mask[5, 10:] = -np.inf, -np.inf
    return mask


@pytest.mark.parametrize("options", [{}, {"compile": "now"}, {"compile": "never"}], ids=str)
def test_a_row_that_may_see_no_key(options: dict[str, Any]) -> None:
    proto, x, mask = attention(), drawn(48, 64), masked()
    expected = sardonyx.load(proto, backend="numpy")(x, mask)
    loaded_model = sardonyx.load(proto, backend="jax", **options)
    assert "SoftmaxOrZero" in str(loaded_model.trace(x, mask))
    for _ in range(5):
        y = loaded_model(x, mask)
        assert not y[3].any()
        assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"axis": 0}, {"zero": 1.0}], ids=str)
def test_other_weights_are_left_alone(options: dict[str, Any]) -> None:
    proto, x, mask = attention(**options), drawn(48, 64), masked()
    loaded_model = sardonyx.load(proto, backend="jax", compile="now")
    assert "SoftmaxOrZero" not in str(loaded_model.trace(x, mask))
    expected = sardonyx.load(proto, backend="numpy")(x, mask)
    assert_allclose(loaded_model(x, mask), expected, rtol=1e-4, atol=1e-5)
