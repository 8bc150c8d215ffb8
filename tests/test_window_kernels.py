"""Pooling of the first tier by kernels, instead of copies and a pass for each tap."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.onednn import HostKernels, loaded, windows
from sardonyx.backends.jax.onednn.windows import reduced
from sardonyx.backends.numpy import HOST
from sardonyx.backends.windows import WindowLayout
from sardonyx.ops.pooling import AveragePool, LpPool, MaxPool
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.test_onednn import drawn

pytestmark = NEEDS_ONEDNN

By = Literal["max", "sum"]
INF, NAN = np.inf, np.nan
LAYOUTS = [
    ((9,), WindowLayout((3,), (2,), (1,), ((0, 0),))),
    ((9,), WindowLayout((3,), (1,), (3,), ((2, 1),))),
    ((8, 9), WindowLayout((2, 2), (2, 2), (1, 1), ((0, 0), (0, 1)))),
    ((7, 6), WindowLayout((3, 2), (1, 3), (2, 1), ((2, 2), (1, 0)))),
    # A window in padding alone, and one as large as the axis.
    ((2, 5), WindowLayout((2, 5), (2, 1), (1, 1), ((3, 3), (0, 0)))),
    ((4, 5, 3), WindowLayout((2, 3, 2), (1, 2, 1), (1, 1, 2), ((1, 0), (0, 2), (1, 1)))),
]


@pytest.fixture(autouse=True)
def kernels() -> None:
    assert loaded.shared_library() is not None


def channels_last(*shape: int) -> Any:
    batch, channels, *spatial = shape
    return np.moveaxis(drawn(batch, *spatial, channels), -1, 1)


def by_numpy(x: Any, layout: WindowLayout, by: By) -> Any:
    padded = HOST.pad(x, [(0, 0), (0, 0), *layout.pads], -INF if by == "max" else 0)
    function = HOST.window_max if by == "max" else HOST.window_sum
    return function(padded, layout.kernel, layout.strides, layout.dilations)


@pytest.mark.parametrize("by", ["max", "sum"])
@pytest.mark.parametrize("channels", [1, 8, 21])
@pytest.mark.parametrize(("spatial", "layout"), LAYOUTS, ids=str)
def test_windows_are_those_of_numpy(
    spatial: tuple[int, ...], layout: WindowLayout, channels: int, by: By
) -> None:
    x = channels_last(2, channels, *spatial)
    for threads in (1, 3):
        y = reduced(x, layout, by=by, threads=threads)
        assert y.dtype == np.float32
        assert_allclose(y, by_numpy(x, layout, by), rtol=1e-5, atol=1e-6)


def test_all_threads_share_the_work() -> None:
    x, layout = channels_last(3, 64, 57, 40), WindowLayout((3, 3), (2, 2), (1, 1), ((1, 1),) * 2)
    for threads in (1, 2, 5):
        assert_array_equal(
            reduced(x, layout, by="max", threads=threads), by_numpy(x, layout, "max")
        )


@pytest.mark.parametrize("by", ["max", "sum"])
@pytest.mark.parametrize("special", [[NAN], [INF, -INF], [-INF], [NAN, INF, -0.0]], ids=str)
def test_what_is_not_finite(special: list[float], by: By) -> None:
    x, layout = channels_last(1, 13, 12, 12), WindowLayout((3, 3), (1, 1), (1, 1), ((1, 1),) * 2)
    for place in range(x.size // 7):
        x.reshape(-1)[place * 7] = special[place % len(special)]
    with np.errstate(all="ignore"):
        expected = by_numpy(x, layout, by)
        assert_allclose(reduced(x, layout, by=by), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "turned", [np.ascontiguousarray, lambda x: x[:, ::2], lambda x: x[:, :, ::-1]]
)
def test_however_arrays_lie(turned: Any) -> None:
    x = turned(channels_last(2, 8, 6, 6))
    for by, layout in product(("max", "sum"), [layout for s, layout in LAYOUTS if len(s) == 2]):
        assert_allclose(reduced(x, layout, by=by), by_numpy(x, layout, by), rtol=1e-5, atol=1e-6)


def test_many_taps_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the axes in turn, and so the sum of the sides instead of their product."""
    monkeypatch.setattr(loaded, "compute", None)
    side = windows.MOST_TAPS // 2
    x, layout = channels_last(1, 4, side, 8), WindowLayout((side, 8), (1, 1), (1, 1), ((0, 0),) * 2)
    assert_allclose(reduced(x, layout, by="max")[..., 0, 0], x.max(axis=(2, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ops_compute_the_same_with_kernels(dtype: Any) -> None:
    """Those of other types or axes, or with indices, do not take them."""
    with_kernels = Interpreter(lambda: False, HostKernels())
    without = Interpreter(lambda: False)
    tolerances = {"rtol": 2e-3 if dtype == np.float16 else 1e-5, "atol": 1e-5}
    for rank in (1, 2, 3, 4):
        x = channels_last(2, 5, *range(5, 5 + rank)).astype(dtype)
        sizes: Any = [{}, {"strides": (2,) * rank, "pads": (1,) * (2 * rank), "ceil_mode": 1}]
        sizes += [{"auto_pad": "SAME_LOWER", "strides": (3,) * rank}, {"dilations": (2,) * rank}]
        for layout in sizes:
            layout["kernel_shape"] = (2,) * rank
            calls: list[Any] = [
                lambda xp, x=x, given=layout: MaxPool(xp, x, outputs=1, **given),
                lambda xp, x=x, given=layout: MaxPool(xp, x, outputs=2, **given)[0],
                lambda xp, x=x, given=layout: AveragePool(xp, x, **given),
                lambda xp, x=x, given=layout: AveragePool(xp, x, count_include_pad=1, **given),
                lambda xp, x=x, given=layout: LpPool(xp, x, **given),
            ]
            for call in calls:
                found, expected = (call(xp) for xp in (with_kernels, without))
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                assert_allclose(found, expected, **tolerances)


def pooled_convolution() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node(
            "AveragePool", ["m"], ["y"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"
        ),
    ]
    return model(nodes, [value("x", ["n", 3, "h", "w"])], ["y"], [weight("w", drawn(8, 3, 3, 3))])


@pytest.mark.parametrize("options", [{}, {"compile": "now"}, {"compile": "never"}], ids=str)
def test_a_network_with_pooling(options: dict[str, Any]) -> None:
    proto = pooled_convolution()
    expected = sardonyx.load(proto, backend="numpy")
    found = sardonyx.load(proto, backend="jax", **options)
    for batch, height, width in [(1, 20, 24), (2, 20, 24), (3, 21, 19), (1, 64, 64), (5, 7, 9)]:
        x = drawn(batch, 3, height, width)
        for _ in range(3):
            assert_allclose(found(x), expected(x), rtol=1e-4, atol=1e-4)
