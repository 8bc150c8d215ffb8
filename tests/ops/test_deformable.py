from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.convolution import Conv
from sardonyx.ops.deformable import DeformConv
from tests.ops.oracle import assert_same, onnxruntime_run, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 4, 7, 6), (6, 4, 3, 2), {}),
    "groups": ((2, 4, 7, 6), (6, 2, 3, 2), {"group": 2}),
    "offset groups": ((1, 4, 5, 5), (2, 4, 2, 2), {"offset_group": 2}),
    "both": ((1, 4, 5, 5), (4, 2, 2, 2), {"group": 2, "offset_group": 4}),
    "laid out": (
        (1, 2, 9, 8),
        (3, 2, 3, 3),
        {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 3]},
    ),
}


def sizes_of(x: Any, w: Any, attributes: Any) -> tuple[int, ...]:
    """The sizes of the result, as those of the convolution with nothing shifted."""
    layout = {k: v for k, v in attributes.items() if k not in ("group", "offset_group")}
    plain = np.zeros((1, 1, *x[2:]), np.float32), np.zeros((1, 1, *w[2:]), np.float32)
    given: Any = {k: tuple(v) for k, v in layout.items()}
    sizes: tuple[int, ...] = run(HOST, Conv, *plain, **given).shape[2:]
    return sizes


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_DeformConv_is_that_of_onnxruntime(xp: Backend, case: tuple[Any, ...]) -> None:
    x, w, attributes = case
    sizes, taps = sizes_of(*case), math.prod(w[2:])
    groups = attributes.get("offset_group", 1)
    # Some taps are shifted out of the padded input.
    offset = drawn(x[0], groups * taps * 2, *sizes, seed=1) * 3
    mask, bias = drawn(x[0], groups * taps, *sizes, seed=2), drawn(w[0], seed=3)
    given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    for rest in ((bias, mask), (None, mask), ()):
        inputs = (drawn(*x), drawn(*w, seed=4), offset, *rest)
        expected = onnxruntime_run("DeformConv", *inputs, opset=19, **attributes)
        assert_same(run(xp, DeformConv, *inputs, **given), expected, ulps=256)


@pytest.mark.parametrize("spatial", [(7,), (4, 5, 3)], ids=["1-D", "3-D"])
def test_DeformConv_of_any_rank_is_its_definition(xp: Backend, spatial: tuple[int, ...]) -> None:
    rank, kernel = len(spatial), (2,) * len(spatial)
    x, w = drawn(1, 2, *spatial).astype(np.float64), drawn(1, 2, *kernel).astype(np.float64)
    sizes = tuple(n + 1 for n in spatial)
    offset = drawn(1, 2**rank * rank, *sizes).astype(np.float64)
    shifts = offset.reshape(*kernel, rank, *sizes)
    expected = np.zeros((1, 1, *sizes))
    for place in np.ndindex(sizes):
        for tap in np.ndindex(kernel):
            at = np.add(place, tap) - 1 + shifts[(*tap, slice(None), *place)]
            expected[(0, 0, *place)] += w[(0, slice(None), *tap)] @ interpolated(x[0], at)
    assert_same(run(xp, DeformConv, x, w, offset, pads=(1,) * (2 * rank)), expected, ulps=64)


def interpolated(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Every element there is, weighted by how near it is along each axis."""
    weights = (
        np.maximum(1 - np.abs(np.arange(n) - a), 0)
        for n, a in zip(x.shape[1:], at.tolist(), strict=True)
    )
    for weight in weights:
        x = np.tensordot(x, weight, axes=(1, 0))
    return x


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_DeformConv_of_narrow_floats_is_rounded_once(backend: Backend, dtype: Any) -> None:
    x, w, offset = (
        drawn(*shape).astype(dtype) for shape in ((1, 8, 5, 5), (2, 8, 3, 3), (1, 18, 3, 3))
    )
    wide = (v.astype(np.float32) for v in (x, w, offset))
    expected = run(HOST, DeformConv, *wide).astype(dtype)
    assert_same(run(backend, DeformConv, x, w, offset), expected, ulps=1)


def test_only_taps_on_the_input_see_it(xp: Backend) -> None:
    x, w = np.full((1, 1, 3, 3), math.inf, np.float32), np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 3, 3), np.float32)
    offset[0, 0, 0], offset[0, 1, 1] = -5, 1e30
    y = run(xp, DeformConv, x, w, offset)
    np.testing.assert_array_equal(y[0, 0, :2], 0)
    offset[0, 1, 1] = math.nan
    assert np.isnan(run(xp, DeformConv, x, w, offset)[0, 0, 1]).all()


@pytest.mark.parametrize(
    ("offset", "mask", "attributes", "message"),
    [
        ((1, 18, 3, 4), (1, 9, 3, 3), {}, "offset has shape"),
        ((1, 18, 3, 3), (1, 18, 3, 3), {}, "mask has shape"),
        ((1, 18, 3, 3), (1, 9, 3, 3), {"offset_group": 3}, "equal groups"),
        ((1, 18, 3, 3), (1, 9, 3, 3), {"offset_group": 0}, "equal groups"),
        ((1, 18, 3, 3), (1, 9, 3, 3), {"group": 2}, "channels"),
        ((1, 18, 3, 3), (1, 9, 3, 3), {"strides": (0, 1)}, "strides"),
    ],
)
def test_DeformConv_refuses(
    xp: Backend, offset: Any, mask: Any, attributes: Any, message: str
) -> None:
    x, w = drawn(1, 2, 5, 5), drawn(2, 2, 3, 3)
    with pytest.raises(ValueError, match=message):
        run(xp, DeformConv, x, w, drawn(*offset), None, drawn(*mask), **attributes)


def test_as_many_axes_as_would_take_for_ever_are_refused() -> None:
    x = np.zeros((1, 1, *(1,) * 20), np.float32)
    with pytest.raises(ValueError, match="1 to 8 spatial axes"):
        run(HOST, DeformConv, x, x, np.zeros((1, 20, *(1,) * 20), np.float32))
