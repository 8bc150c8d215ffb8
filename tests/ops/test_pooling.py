from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends import windows as window_views
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.definition import Op
from sardonyx.ops.pooling import (
    AveragePool,
    GlobalAveragePool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
)
from sardonyx.ops.windows import Windows, windows_over
from tests.ops.oracle import assert_same, onnxruntime_run, run
from tests.support.strict_backend import StrictBackend

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BACKENDS = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend(), StrictBackend()], ids=lambda backend: backend.name
)


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """An input and attributes under which at least one window fits, as onnxruntime takes them."""
    rank = draw(st.integers(1, 3))
    axes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, strides, dilations = draw(axes), draw(axes), draw(axes)
    ends = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    spare = draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank))
    sizes = [r + more for r, more in zip(reach, spare, strict=True)]
    attributes = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": ends,
        "ceil_mode": draw(st.integers(0, 1)),
    }
    return drawn(2, 2, *sizes), attributes


def static(attributes: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}


@BACKENDS
@settings(deadline=None, max_examples=25)
@given(pool=pools(), storage_order=st.integers(0, 1))
@pytest.mark.sampled(3)
def test_MaxPool_and_its_indices_are_those_of_onnxruntime(
    backend: Backend, pool: Any, storage_order: int
) -> None:
    x, attributes = pool
    attributes = attributes | {"storage_order": storage_order}
    expected = onnxruntime_run("MaxPool", x, opset=12, outputs=2, **attributes)
    actual = run(backend, MaxPool, x, outputs=2, **static(attributes))
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other, ulps=0)
    assert_same(run(backend, MaxPool, x, outputs=1, **static(attributes)), expected[0], ulps=0)


@BACKENDS
@settings(deadline=None, max_examples=25)
@given(pool=pools(), count_include_pad=st.integers(0, 1))
def test_AveragePool_is_that_of_onnxruntime(
    backend: Backend, pool: Any, count_include_pad: int
) -> None:
    x, attributes = pool
    attributes = attributes | {"count_include_pad": count_include_pad}
    expected = onnxruntime_run("AveragePool", x, opset=19, **attributes)
    assert_same(run(backend, AveragePool, x, **static(attributes)), expected, ulps=8)


@BACKENDS
@settings(deadline=None, max_examples=15)
@given(pool=pools(), p=st.integers(1, 3))
def test_LpPool_is_that_of_onnxruntime(backend: Backend, pool: Any, p: int) -> None:
    x, attributes = pool
    expected = onnxruntime_run("LpPool", x, opset=18, p=p, **attributes)
    assert_same(run(backend, LpPool, x, p=p, **static(attributes)), expected, ulps=32)


@pytest.mark.parametrize("op", [MaxPool, AveragePool, LpPool], ids=lambda op: op.name)
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3], [4, 4]], ids=str)
def test_automatic_padding_is_that_of_onnxruntime(
    xp: Backend, op: Op, auto_pad: str, strides: list[int]
) -> None:
    attributes = {"auto_pad": auto_pad, "kernel_shape": [2, 3], "strides": strides}
    x = drawn(1, 2, 6, 7)
    expected = onnxruntime_run(op.name, x, opset=11, **attributes)
    count = {"outputs": 1} if op is MaxPool else {}
    assert_same(run(xp, op, x, **static(attributes), **count), expected, ulps=8)


@pytest.mark.parametrize("op", [MaxPool, AveragePool, LpPool], ids=lambda op: op.name)
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)], ids=str)
def test_an_axis_without_elements_has_no_windows(
    xp: Backend, op: Op, auto_pad: str, dilations: tuple[int, int]
) -> None:
    attributes = {"auto_pad": auto_pad, "kernel_shape": (3, 3), "dilations": dilations}
    count = {"outputs": 1} if op is MaxPool else {}
    with pytest.raises(ValueError, match="does not fit an axis of 0"):
        run(xp, op, drawn(1, 2, 0, 7), **attributes, **count)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        # The standard's formulas; onnxruntime forgets the dilation in the first ...
        ({"auto_pad": "SAME_UPPER", "kernel_shape": (2,), "dilations": (2,)}, [2, 3, 4, 5, 4]),
        # ... and rounds up in the second.
        ({"auto_pad": "VALID", "kernel_shape": (2,), "strides": (2,), "ceil_mode": 1}, [2, 4]),
        ({"kernel_shape": (3,), "strides": (3,), "pads": (1, 1), "ceil_mode": 1}, [2, 5]),
        ({"kernel_shape": (2,), "pads": (2, 0)}, [-np.inf, 1, 2, 3, 4, 5]),
    ],
)
def test_MaxPool_where_onnxruntime_differs_or_refuses(
    xp: Backend, attributes: Any, expected: Any
) -> None:
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    y = run(xp, MaxPool, x, outputs=1, **attributes)
    np.testing.assert_array_equal(y.ravel(), np.asarray(expected, dtype=np.float32))


def test_a_kernel_far_larger_than_its_input_costs_and_adds_nothing(xp: Backend) -> None:
    """As a network has it that averages all there is; going over its padding takes seconds."""
    x = drawn(2, 96, 1, 1)
    square = {"kernel_shape": (640, 640), "strides": (640, 640), "ceil_mode": 1}
    largest, at = run(xp, MaxPool, x, outputs=2, **square)
    for same in (run(xp, AveragePool, x, **square), run(xp, MaxPool, x, outputs=1, **square)):
        assert_same(same, x, ulps=0)
    assert_same(run(xp, LpPool, x, **square), np.abs(x), ulps=1)
    assert_same(largest, x, ulps=0)
    np.testing.assert_array_equal(at.ravel(), np.arange(x.size))


def test_padding_adds_nothing_to_a_tile(xp: Backend) -> None:
    """XLA for CPUs compiled this to sums of one element over and over."""
    x = drawn(2, 400, 1, 1)
    tiles = ((16, 16), (16, 16), (1, 1))
    widths = [(0, 0), (0, 0), (0, 15), (0, 15)]
    assert_same(padded_sum(xp, x, widths, tiles), x, ulps=0)


@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_takes_nothing_from_a_window(xp: Backend, dilation: int) -> None:
    """XLA for CPUs left out the last of three elements, for these sizes and few others."""
    x = drawn(1, 1, 4 * dilation - 1, 8)
    windows = ((3, 1), (dilation, 1), (dilation, 1))
    widths = [(0, 0), (0, 0), (1, 1), (1, 0)]
    expected = sum(window_views.views(np.pad(x, widths), *windows))
    assert_same(padded_sum(xp, x, widths, windows), expected)


def padded_sum(xp: Backend, x: Any, widths: Any, windows: Any) -> Any:
    """As one program, where the backend compiles."""
    with xp.scope():
        given = xp.put(x)
        program = xp.compile(lambda x: [xp.window_sum(xp.pad(x, widths, 0), *windows)], [given])
        return xp.fetch(program.run(given)[0])


def touched(windows: Windows) -> list[list[int]]:
    """The elements of the only axis under each window."""
    (head, _), (side,) = windows.pads[0], windows.kernel
    starts = (i * windows.strides[0] - head for i in range(windows.sizes[0]))
    taps = range(0, side * windows.dilations[0], windows.dilations[0])
    inside = range(windows.spatial[0])
    return [[start + tap for tap in taps if start + tap in inside] for start in starts]


@settings(deadline=None, max_examples=200)
@given(
    length=st.integers(0, 6),
    layout=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4)),
    pads=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    ceil_mode=st.integers(0, 1),
)
def test_idle_taps_are_those_that_touch_nothing(
    length: int, layout: Any, pads: Any, ceil_mode: int
) -> None:
    side, stride, dilation = layout
    assume(length + sum(pads) >= (side - 1) * dilation + max(stride, 2))
    whole = windows_over(
        (length,),
        (side,),
        strides=(stride,),
        dilations=(dilation,),
        pads=pads,
        auto_pad="NOTSET",
        ceil_mode=ceil_mode,
    )
    less = whole.without_idle_taps()
    assert touched(less) == touched(whole)
    padded = less.padded(HOST, np.zeros((1, 1, length)), 0)
    assert HOST.window_sum(padded, *less[1:4]).shape[2:] == whole.sizes
    if whole.sizes == (1,) and dilation == 1:
        assert less.kernel[0] == max(len(touched(whole)[0]), 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_MaxPool_of_bytes(xp: Backend, dtype: Any) -> None:
    low = np.iinfo(dtype).min
    x = np.array([low, low, low, low + 1, 7, low], dtype=dtype).reshape(1, 1, 6)
    y, at = run(xp, MaxPool, x, outputs=2, kernel_shape=(2,), strides=(2,), pads=(1, 1))
    assert y.dtype == dtype
    assert at.dtype == np.int64
    np.testing.assert_array_equal(y.ravel(), np.array([low, low, 7, low], dtype=dtype))
    np.testing.assert_array_equal(at.ravel(), [0, 1, 4, 5])


def test_indices_count_through_all_planes(xp: Backend) -> None:
    x = np.full((2, 3, 2, 2), -np.inf, dtype=np.float32)
    _, at = run(xp, MaxPool, x, outputs=2, kernel_shape=(2, 2), pads=(1, 1, 0, 0), strides=(2, 2))
    np.testing.assert_array_equal(at.ravel(), np.arange(6) * 4)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_narrow_floats_are_summed_in_float32(backend: Backend, dtype: Any) -> None:
    x = drawn(1, 3, 40, 40).astype(dtype) + dtype.type(300)
    wide = x.astype(np.float64)
    square = {"kernel_shape": (40, 40)}
    mean = wide.mean(axis=(2, 3), keepdims=True).astype(dtype)
    assert_same(run(backend, AveragePool, x, **square), mean, ulps=1)
    assert_same(run(backend, GlobalAveragePool, x), mean, ulps=1)
    norm = np.sqrt((wide**2).sum(axis=(2, 3), keepdims=True)).astype(dtype)
    assert_same(run(backend, LpPool, x, **square), norm, ulps=1)
    assert_same(run(backend, GlobalLpPool, x), norm, ulps=1)
    largest = wide.max(axis=(2, 3), keepdims=True).astype(dtype)
    assert_same(run(backend, MaxPool, x, outputs=1, **square), largest, ulps=0)
    assert_same(run(backend, GlobalMaxPool, x), largest, ulps=0)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (0, 3, 2, 2), (1, 2, 2, 3, 4)])
def test_global_pools(xp: Backend, shape: tuple[int, ...]) -> None:
    x = drawn(*shape, dtype=np.float64)
    axes = tuple(range(2, x.ndim))
    assert_same(run(xp, GlobalMaxPool, x), x.max(axis=axes, keepdims=True))
    assert_same(run(xp, GlobalAveragePool, x), x.mean(axis=axes, keepdims=True))
    for p in (1, 2, 3.5):
        norm = (np.abs(x) ** p).sum(axis=axes, keepdims=True) ** (1 / p)
        assert_same(run(xp, GlobalLpPool, x, p=p, opset=1), norm, ulps=16)


def test_first_LpPool_has_fractional_powers(xp: Backend) -> None:
    x = drawn(1, 1, 4, dtype=np.float64)
    y = run(xp, LpPool, x, opset=1, kernel_shape=(2,), p=2.5)
    power = np.abs(x) ** 2.5
    assert_same(y, (power[..., :-1] + power[..., 1:]) ** 0.4, ulps=8)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(
    "window", [((7, 1), (2, 3), (1, 1)), ((2, 5), (1, 1), (3, 2)), ((12, 9), (4, 5), (1, 2))]
)
def test_window_reductions_are_their_definition(xp: Backend, dtype: Any, window: Any) -> None:
    x = (drawn(2, 3, 20, 21) * 100).astype(dtype)
    kernel, strides, dilations = window
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    views = views[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    with xp.scope():
        largest = xp.fetch(xp.window_max(xp.put(x), *window))
        total = xp.fetch(xp.window_sum(xp.put(x), *window))
    assert_same(largest, views.max(axis=(-2, -1)), ulps=0)
    assert_same(total, views.sum(axis=(-2, -1), dtype=dtype), ulps=2000)


def test_other_platforms_than_the_cpu_reduce_windows_at_once() -> None:
    x = np.ones((1, 4, 8, 8), np.float32)
    pool = jax.jit(lambda x: MaxPool(JaxBackend(), x, kernel_shape=(3, 3), outputs=1)).trace(x)
    for platform, steps in [("cpu", 0), ("cuda", 1), ("tpu", 1)]:
        text = pool.lower(lowering_platforms=(platform,)).as_text()
        assert text.count("stablehlo.reduce_window") == steps


@pytest.mark.parametrize("op", [MaxPool, AveragePool, LpPool], ids=lambda op: op.name)
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"kernel_shape": (0, 2)}, "kernel_shape"),
        ({"kernel_shape": (2,)}, "kernel_shape"),
        ({"kernel_shape": (2, 2), "strides": (-1, 1)}, "strides"),
        ({"kernel_shape": (2, 2), "pads": (0, 0, -1, 0)}, "pads"),
        ({"kernel_shape": (5, 2)}, "does not fit"),
        ({"kernel_shape": (2, 2), "dilations": (4, 1)}, "does not fit"),
        ({"kernel_shape": (2, 2), "auto_pad": "same"}, "auto_pad"),
    ],
)
def test_pools_refuse(xp: Backend, op: Op, attributes: Any, message: str) -> None:
    count = {"outputs": 1} if op is MaxPool else {}
    with pytest.raises(ValueError, match=message):
        run(xp, op, drawn(1, 1, 4, 4), **attributes, **count)


def test_powers_must_be_positive(xp: Backend) -> None:
    with pytest.raises(ValueError, match="p is 0"):
        run(xp, GlobalLpPool, drawn(1, 1, 2), p=0)


def test_lp_pool_of_the_first_opset_needs_a_kernel() -> None:
    with pytest.raises(sardonyx.SardonyxError, match="'kernel_shape' is missing"):
        sardonyx.run_op("LpPool", drawn(1, 1, 2), opset=1)


@pytest.mark.parametrize("place", range(4))
def test_the_index_of_NaN_is_where_it_stands(xp: Backend, place: int) -> None:
    """What MaxPool returns is the element at the index that it returns."""
    x = np.array([2, 5, -np.inf, 3], np.float32)
    x[place] = np.nan
    largest, at = run(xp, MaxPool, x.reshape(1, 1, 4), kernel_shape=(4,), outputs=2)
    np.testing.assert_array_equal(largest, [[[np.nan]]])
    np.testing.assert_array_equal(at, [[[place]]])
