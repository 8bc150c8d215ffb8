from __future__ import annotations

from itertools import product
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.convolution import Conv, ConvTranspose
from tests.ops.oracle import assert_same, onnxruntime_run, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 2)),
    "padded unevenly": ((1, 3, 7, 6), (4, 3, 3, 2), {"pads": [0, 1, 2, 3], "strides": [2, 1]}),
    "dilated": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilations": [2, 3], "pads": [1] * 4}),
    "kernel_shape given": ((1, 2, 9, 9), (3, 2, 3, 3), {"kernel_shape": [3, 3]}),
    "same upper": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same lower": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "same, stride beyond": (
        (1, 2, 6, 7),
        (3, 2, 1, 2),
        {"auto_pad": "SAME_UPPER", "strides": [4, 4]},
    ),
    "valid": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "VALID"}),
    "groups": ((2, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": [1] * 4}),
    "depthwise": ((2, 5, 7, 7), (5, 1, 3, 3), {"group": 5, "strides": [2, 2], "pads": [1] * 4}),
    "depthwise, several each": ((2, 3, 7, 7), (6, 1, 3, 3), {"group": 3, "dilations": [2, 2]}),
    "depthwise, large": ((1, 3, 12, 12), (3, 1, 9, 9), {"group": 3, "pads": [4] * 4}),
    "one channel": ((2, 1, 9), (4, 1, 4), {"strides": [2]}),
    "points": ((2, 3, 5, 6), (4, 3, 1, 1)),
    "strided points": ((2, 3, 5, 6), (4, 3, 1, 1), {"strides": [2, 3]}),
    "padded points": ((2, 3, 5, 6), (4, 3, 1, 1), {"pads": [1, 0, 0, 1]}),
    "tiles": ((2, 3, 9, 8), (4, 3, 4, 3), {"strides": [4, 3]}),
    "few places, many filters": ((1, 5, 3, 3), (40, 5, 3, 3), {"pads": [1] * 4}),
    "1-D": ((2, 3, 11), (4, 3, 3), {"strides": [2], "pads": [1, 2]}),
    "3-D": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1], "strides": [2, 1, 1]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
@pytest.mark.sampled(3)
def test_Conv_is_that_of_onnxruntime(xp: Backend, case: tuple[Any, ...]) -> None:
    x, w, b = drawn(*case[0]), drawn(*case[1], seed=1), drawn(case[1][0], seed=2)
    attributes = case[2] if len(case) > 2 else {}
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    expected = onnxruntime_run("Conv", x, w, b, opset=11, **attributes)
    assert_same(run(xp, Conv, x, w, b, **given), expected, ulps=64)
    without = onnxruntime_run("Conv", x, w, opset=11, **attributes)
    assert_same(run(xp, Conv, x, w, **given), without, ulps=64)


def correlated(
    x: np.ndarray, w: np.ndarray, *, strides: Any, pads: Any, dilations: Any, groups: int
) -> np.ndarray:
    """Window by window, as the definition has it."""
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *sizes), dtype=x.dtype)
    for place in product(*map(range, sizes)):
        cut = tuple(
            slice(p * s, p * s + r, d)
            for p, s, r, d in zip(place, strides, reach, dilations, strict=True)
        )
        window = x[(slice(None), slice(None), *cut)]
        for g in range(groups):
            some = window[:, g * inputs : (g + 1) * inputs]
            filters = w[g * outputs : (g + 1) * outputs]
            axes = tuple(range(1, w.ndim))
            y[(slice(None), slice(g * outputs, (g + 1) * outputs), *place)] = np.tensordot(
                some, filters, axes=(axes, axes)
            )
    return y


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@settings(deadline=None, max_examples=25)
@given(
    kernel=pairs(1, 3),
    strides=pairs(1, 3),
    dilations=pairs(1, 2),
    pads=st.tuples(pairs(0, 2), pairs(0, 2)),
    groups=st.integers(1, 3),
    channels=st.integers(1, 2),
    filters=st.sampled_from([1, 2, 30]),
    sizes=pairs(1, 7),
)
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.slow
def test_every_form_of_the_primitive_is_the_definition(
    *,
    backend: Backend,
    kernel: Any,
    strides: Any,
    dilations: Any,
    pads: Any,
    groups: int,
    channels: int,
    filters: int,
    sizes: Any,
) -> None:
    room = [
        n + sum(p) - (k - 1) * d for n, p, k, d in zip(sizes, pads, kernel, dilations, strict=True)
    ]
    assume(min(room) > 0)
    x = drawn(2, groups * channels, *sizes, dtype=np.float64)
    w = drawn(groups * filters, channels, *kernel, dtype=np.float64, seed=1)
    layout = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    with backend.scope():
        actual = backend.fetch(backend.convolution(backend.put(x), backend.put(w), **layout))
    np.testing.assert_allclose(actual, correlated(x, w, **layout), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
@pytest.mark.parametrize("group", [1, 64], ids=["dense", "depthwise"])
def test_narrow_floats_accumulate_in_float32(backend: Backend, dtype: Any, group: int) -> None:
    # Sums that would stop growing if each step were rounded.
    x = np.ones((1, 64, 8, 8), dtype=dtype)
    w = (
        (1 + np.arange(64 * (64 // group) * 49) % 3 / 64)
        .reshape(64, 64 // group, 7, 7)
        .astype(dtype)
    )
    expected = correlated(
        x.astype(np.float64),
        w.astype(np.float64),
        strides=(1, 1),
        pads=((0, 0), (0, 0)),
        dilations=(1, 1),
        groups=group,
    )
    assert_same(run(backend, Conv, x, w, group=group), expected.astype(dtype), ulps=1)


def test_integers_and_empty_batches_are_convolved(xp: Backend) -> None:
    x, w = np.arange(2 * 16, dtype=np.int32).reshape(1, 2, 4, 4), np.full((3, 2, 3, 3), 1 << 20)
    layout: Any = {"strides": (1, 1), "pads": ((1, 1), (0, 0)), "dilations": (1, 1), "groups": 1}
    with xp.scope():
        y = xp.fetch(xp.convolution(xp.put(x), xp.put(w.astype(np.int32)), **layout))
    np.testing.assert_array_equal(y, correlated(x, w.astype(np.int32), **layout))
    empty = np.zeros((0, 3, 5, 5), dtype=np.float32)
    for shape in [(4, 3, 1, 1), (4, 3, 3, 3), (4, 3, 5, 5)]:
        assert run(xp, Conv, empty, drawn(*shape)).shape == (0, 4, 6 - shape[2], 6 - shape[2])


def test_other_platforms_than_the_cpu_get_plain_convolutions() -> None:
    x, w = np.ones((1, 4, 8, 8), np.float32), np.ones((4, 1, 3, 3), np.float32)
    traced = jax.jit(lambda x, w: Conv(JaxBackend(), x, w, group=4)).trace(x, w)
    for platform, is_plain in [("cpu", False), ("cuda", True), ("tpu", True)]:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("stablehlo.convolution" in text) is is_plain


@pytest.mark.parametrize(
    ("x", "w", "attributes", "message"),
    [
        ((1, 2, 5, 5), (3, 2, 3, 3), {"strides": (0, 1)}, "strides"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"strides": (1,)}, "strides"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"dilations": (1, -1)}, "dilations"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"pads": (-1, 0, 0, 0)}, "pads"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"pads": (1, 1)}, "pads"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"group": 0}, "group"),
        ((1, 2, 5, 5), (3, 1, 3, 3), {"group": 2}, "with group 2 does not fit"),
        ((1, 2, 5, 5), (3, 3, 3, 3), {}, "channels"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"kernel_shape": (3, 2)}, "kernel_shape"),
        ((1, 2, 5, 5), (3, 2, 0, 3), {}, "kernel_shape"),
        ((1, 2, 5, 5), (3, 2, 6, 3), {}, "does not fit"),
        *[
            ((1, 2, 0, 5), (3, 2, side, 3), {"auto_pad": auto_pad}, "does not fit an axis of 0")
            for auto_pad in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
            for side in (1, 3)
        ],
        ((1, 2, 5, 5), (3, 2, 3), {}, "axes"),
        ((1, 2, 5, 5), (3, 2, 3, 3), {"auto_pad": "SAME"}, "auto_pad"),
    ],
)
def test_Conv_refuses(xp: Backend, x: Any, w: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, Conv, drawn(*x), drawn(*w), **attributes)


TRANSPOSES: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 2)),
    "strided": ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 3], "pads": [1, 0, 1, 2]}),
    "output_padding": ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [3, 2], "output_padding": [2, 1]}),
    "output_shape": ((1, 3, 3, 3), (3, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    "smaller output_shape": (
        (1, 3, 3, 3),
        (3, 2, 3, 3),
        {"strides": [3, 2], "output_shape": [6, 4]},
    ),
    "same upper": ((1, 3, 3, 4), (3, 2, 4, 3), {"strides": [3, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ((1, 3, 3, 4), (3, 2, 4, 3), {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    "dilated": ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": [2, 3], "strides": [2, 1]}),
    "groups": ((1, 4, 3, 3), (4, 3, 2, 2), {"group": 2, "strides": [2, 2]}),
    "cut beyond the filter": ((1, 2, 6, 6), (2, 2, 1, 2), {"pads": [1, 2, 2, 1]}),
    "stride beyond the filter": ((1, 2, 3, 3), (2, 2, 1, 2), {"strides": [3, 3]}),
    "1-D": ((2, 3, 6), (3, 4, 4), {"strides": [2], "pads": [1, 1]}),
    "3-D": ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"strides": [2, 1, 2]}),
    "even shares": ((2, 4, 3, 5), (4, 3, 6, 2), {"strides": [3, 1], "pads": [4, 0, 1, 1]}),
    "even shares, groups": (
        (2, 6, 3, 4),
        (6, 2, 4, 6),
        {"group": 3, "strides": [2, 3], "output_padding": [1, 2], "pads": [1, 2, 3, 0]},
    ),
    "even shares, 3-D": (
        (1, 2, 2, 3, 2),
        (2, 3, 2, 1, 4),
        {"strides": [2, 1, 2], "output_shape": [5, 3, 3]},
    ),
    "even shares of none": ((0, 2, 3, 1), (2, 2, 2, 2), {"strides": [2, 2], "pads": [0, 0, 0, 0]}),
}


def test_ConvTranspose_multiplies_no_zeros_between_elements(xp: Backend) -> None:
    x, w = drawn(1, 2, 3, 3), drawn(2, 2, 2, 2, seed=1)
    w[0, 1, 1, 0] = np.inf
    expected = onnxruntime_run("ConvTranspose", x, w, opset=11, strides=[2, 2])
    assert np.isinf(expected).any()
    assert not np.isnan(expected).any()
    assert_same(run(xp, ConvTranspose, x, w, strides=(2, 2)), expected, ulps=64)


@pytest.mark.parametrize("case", TRANSPOSES.values(), ids=TRANSPOSES.keys())
def test_ConvTranspose_is_that_of_onnxruntime(xp: Backend, case: tuple[Any, ...]) -> None:
    attributes = case[2] if len(case) > 2 else {}
    outputs = case[1][1] * attributes.get("group", 1)
    x, w, b = drawn(*case[0]), drawn(*case[1], seed=1), drawn(outputs, seed=2)
    expected = onnxruntime_run("ConvTranspose", x, w, b, opset=11, **attributes)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    assert_same(run(xp, ConvTranspose, x, w, b, **given), expected, ulps=64)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"pads": (9, 9, 9, 9)}, "cut off all"),
        ({"output_padding": (-1, 0)}, "output_padding"),
        ({"output_shape": (0, 3)}, "output_shape"),
        ({"group": 3}, "with group 3 does not fit"),
        ({"strides": (0, 0)}, "strides"),
    ],
)
def test_ConvTranspose_refuses(xp: Backend, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, ConvTranspose, drawn(1, 2, 4, 4), drawn(2, 2, 3, 3), **attributes)
