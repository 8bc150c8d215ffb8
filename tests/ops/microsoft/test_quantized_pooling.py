from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import BYTES, DOMAIN, assert_as_onnxruntime, integers, scales
from tests.ops.oracle import run

POOLS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 3, 7, 6), {"kernel_shape": (2, 2)}),
    "strided": ((1, 3, 9, 8), {"kernel_shape": (3, 2), "strides": (2, 3)}),
    "padded": ((1, 2, 7, 6), {"kernel_shape": (3, 3), "pads": (1, 0, 1, 2)}),
    "padding counts": (
        (1, 2, 7, 6),
        {"kernel_shape": (3, 3), "pads": (1, 0, 1, 2), "count_include_pad": 1},
    ),
    "ceiling": ((1, 2, 8, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    "same": ((1, 2, 8, 7), {"kernel_shape": (3, 4), "strides": (2, 3), "auto_pad": "SAME_LOWER"}),
    "whole": ((2, 3, 5, 4), {"kernel_shape": (5, 4)}),
    "1-D": ((2, 3, 11), {"kernel_shape": (3,), "strides": (2,)}),
    "3-D": ((1, 2, 5, 6, 4), {"kernel_shape": (2, 3, 2)}),
}


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
@pytest.mark.sampled(3)
def test_averages_are_those_of_onnxruntime(
    xp: Backend, case: tuple[Any, ...], channels_last: int, dtype: Any
) -> None:
    shape, attributes = case
    x = integers(dtype, *shape)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
    if len(shape) != 4:
        attributes = {**attributes, "count_include_pad": 1}
    for scale in (scales(), scales(seed=1)):
        inputs = (x, scale, integers(dtype), scale, integers(dtype, seed=1))
        assert_as_onnxruntime(
            xp, "QLinearAveragePool", *inputs, channels_last=channels_last, **attributes
        )


def test_large_windows(xp: Backend) -> None:
    x = integers(np.uint8, 1, 2, 12, 13)
    zero = np.array(7, np.uint8)
    inputs = (x, np.float32(0.1), zero, np.float32(0.07), zero)
    arrays = [np.asarray(value) for value in inputs]
    # Many terms in another order: a value near a half may be rounded to its other side.
    assert_as_onnxruntime(xp, "QLinearAveragePool", *arrays, units=1, kernel_shape=(9, 9))


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (1, 70, 9), (2, 2, 3, 4, 5), (0, 2, 3, 3)])
def test_averages_of_all(xp: Backend, shape: Any, channels_last: int, dtype: Any) -> None:
    x = integers(dtype, *shape)
    inputs = (x, scales(seed=1), integers(dtype), scales(seed=2), integers(dtype, seed=1))
    assert_as_onnxruntime(xp, "QLinearGlobalAveragePool", *inputs, channels_last=channels_last)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 7, 6, 3), {"kernel_shape": (2, 3)}),
        ((1, 8, 8, 5), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
        ((1, 7, 6, 3), {"kernel_shape": (3, 2), "pads": (1, 1, 2, 0), "dilations": (2, 1)}),
        ((1, 9, 3), {"kernel_shape": (3,), "auto_pad": "SAME_UPPER"}),
    ],
)
def test_maxima_with_channels_last(xp: Backend, shape: Any, attributes: Any, dtype: Any) -> None:
    assert_as_onnxruntime(xp, "NhwcMaxPool", integers(dtype, *shape), **attributes)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize(("axes", "keepdims"), [((0, -1), 1), ((1,), 0), ((), 1)])
def test_reductions_are_those_of_the_documentation(
    xp: Backend, axes: Any, keepdims: int, dtype: Any
) -> None:
    x, zero = integers(dtype, 3, 4, 5), integers(dtype)
    over, keep = axes or None, bool(keepdims)
    sums = run(xp, OPS[DOMAIN, "ReduceSumInteger"], x, axes=axes, keepdims=keepdims)
    np.testing.assert_array_equal(sums, x.astype(np.int64).sum(over, keepdims=keep))
    assert sums.dtype == (np.int32 if dtype == np.int8 else np.uint32)
    inputs = (x, np.float32(0.3), zero, np.float32(0.217), zero)
    mean = run(
        xp,
        OPS[DOMAIN, "QLinearReduceMean"],
        *(np.asarray(value) for value in inputs),
        axes=axes,
        keepdims=keepdims,
    )
    values = ((x.astype(np.float64) - zero) * 0.3).mean(over, keepdims=keep)
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(values / 0.217) + zero, limits.min, limits.max)
    np.testing.assert_array_equal(mean, expected)
    assert mean.dtype == dtype


ONE, ZERO = np.ones((), np.float32), np.zeros((), np.uint8)


@pytest.mark.parametrize(
    ("name", "shape", "attributes", "message"),
    [
        ("QLinearGlobalAveragePool", (2, 3), {}, "spatial axis"),
        ("QLinearGlobalAveragePool", (2, 3), {"channels_last": 1}, "three axes"),
        ("QLinearGlobalAveragePool", (2, 3, 0), {}, "none empty"),
        ("QLinearAveragePool", (2, 3, 4), {"kernel_shape": (2, 2)}, "kernel_shape"),
        ("QLinearAveragePool", (2, 3, 4), {"kernel_shape": (5,)}, "does not fit"),
    ],
)
def test_refusals(xp: Backend, name: str, shape: Any, attributes: Any, message: str) -> None:
    inputs = (np.zeros(shape, np.uint8), ONE, ZERO, ONE, ZERO)
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, name], *inputs, **attributes)
