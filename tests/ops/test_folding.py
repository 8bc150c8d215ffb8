from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import SardonyxError
from tests.ops.oracle import assert_same, onnxruntime_run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def folded(
    backend: Backend, columns: np.ndarray, image: Any, block: Any, **attributes: Any
) -> np.ndarray:
    sides = np.array(image, np.int64), np.array(block, np.int64)
    run: Any = sardonyx.run_op
    result: np.ndarray = run("Col2Im", columns, *sides, opset=18, backend=backend, **attributes)
    return result


def unfolded(x: np.ndarray, block: Any, *, strides: Any, dilations: Any, pads: Any) -> np.ndarray:
    """The columns of an image of any rank, of which Col2Im makes sums."""
    rank = len(block)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(side - 1) * d + 1 for side, d in zip(block, dilations, strict=True)]
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    steps = (slice(None, None, step) for step in (1, 1, *strides, *dilations))
    windows = np.moveaxis(view[tuple(steps)], axes, range(-rank, 0))
    return windows.reshape(x.shape[0], x.shape[1] * int(np.prod(block)), -1)


FOLDS: dict[str, tuple[Any, ...]] = {
    "tiles": ((4, 6), (2, 3), {"strides": [2, 3]}),
    "overlapping": ((5, 6), (2, 3), {}),
    "padded": ((5, 6), (2, 3), {"pads": [1, 0, 0, 2]}),
    "apart": ((9, 8), (2, 3), {"strides": [5, 4]}),
    "dilated": ((7, 9), (2, 3), {"dilations": [2, 3], "strides": [2, 1]}),
    "coprime": ((11, 9), (3, 4), {"dilations": [3, 2], "strides": [2, 3], "pads": [1, 2, 0, 1]}),
    "one block": ((3, 4), (3, 4), {"strides": [2**62, 2**62]}),
    "1-D": ((12,), (5,), {"strides": [2], "dilations": [2], "pads": [1, 3]}),
    "3-D": ((4, 5, 6), (2, 1, 3), {"strides": [1, 2, 2], "pads": [0, 0, 1, 1, 0, 0]}),
}


@pytest.mark.parametrize("case", FOLDS.values(), ids=FOLDS.keys())
def test_Col2Im_adds_what_columns_were_made_of(xp: Backend, case: tuple[Any, ...]) -> None:
    image, block, attributes = case
    rank = len(image)
    layout = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank, **attributes}
    columns = drawn(*unfolded(np.zeros((2, 3, *image)), block, **layout).shape)
    y = folded(xp, columns, image, block, **attributes)
    # Folding is the transpose of unfolding: <fold c, x> = <c, unfold x> for every x.
    x = drawn(2, 3, *image, seed=1)
    np.testing.assert_allclose(
        np.vdot(y, x), np.vdot(columns, unfolded(x, block, **layout)), rtol=1e-4
    )
    if rank == 2:
        sides = np.array(image), np.array(block)
        expected = onnxruntime_run("Col2Im", columns, *sides, opset=18, **attributes)
        assert_same(y, expected, ulps=8)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint64, np.complex128, np.float64], ids=lambda d: d.__name__
)
def test_Col2Im_of_other_numbers(xp: Backend, dtype: Any) -> None:
    columns = np.arange(4 * 9).reshape(1, 4, 9).astype(dtype) * dtype(7)
    y = folded(xp, columns, (4, 4), (2, 2))
    expected = np.zeros((4, 4), dtype)
    for tap, (i, j) in enumerate(np.ndindex(2, 2)):
        expected[i : i + 3, j : j + 3] += columns[0, tap].reshape(3, 3)
    assert_same(y, expected[None, None])


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_Col2Im_of_narrow_floats_is_rounded_once(backend: Backend, dtype: Any) -> None:
    columns = drawn(1, 36, 25).astype(dtype)
    wide = folded(HOST, columns.astype(np.float32), (10, 10), (6, 6))
    assert_same(folded(backend, columns, (10, 10), (6, 6)), wide.astype(dtype), ulps=1)


def test_Col2Im_of_truth_values_and_of_strings(xp: Backend) -> None:
    columns = np.array([[[True, False, False], [False, False, True]]])
    assert_same(folded(xp, columns, (4,), (2,)), np.array([[[True, False, False, True]]]))
    texts = np.array([[["a", "b"], ["c", "d"]]], dtype=object)
    apart = folded(xp, texts, (5,), (2,), strides=[3])
    assert apart.tolist() == [[["a", "c", "", "b", "d"]]]
    assert folded(xp, texts, (3,), (2,)).tolist() == [[["a", "bc", "d"]]]


@pytest.mark.parametrize(
    ("image", "block", "attributes", "message"),
    [
        ((5, 6), (2, 3), {"strides": [2, 1]}, "needs an input of shape"),
        ((5, 6), (5, 1), {}, "needs an input of shape"),
        ((5, 6), (4, 1), {}, "must be a multiple of"),
        ((5, 6), (2, 3, 1), {}, "block_shape"),
        ((5, 0), (2, 3), {}, "image_shape"),
        ((5, 6), (2, 0), {}, "block_shape"),
        ((5, 6), (9, 9), {}, "does not fit an axis of 5"),
        ((5, 6), (2, 3), {"strides": [0, 1]}, "strides"),
        ((5, 6), (2, 3), {"dilations": [-1, 1]}, "dilations"),
        ((5, 6), (2, 3), {"pads": [0, -1, 0, 0]}, "pads"),
        ((5, 6), (2, 3), {"pads": [0]}, "pads"),
        ((2**40, 2**40), (1, 1), {"strides": [2**38, 2**38]}, "bytes"),
    ],
)
def test_Col2Im_refuses(image: Any, block: Any, attributes: Any, message: str) -> None:
    count = 12 if block == (4, 1) else 16
    with pytest.raises(SardonyxError, match=message):
        folded(HOST, drawn(1, 6, count), image, block, **attributes)


# -- what pooling has left ------------------------------------------------------------------------


def unpooled(backend: Backend, *inputs: np.ndarray, **attributes: Any) -> np.ndarray:
    run: Any = sardonyx.run_op
    result: np.ndarray = run("MaxUnpool", *inputs, opset=11, backend=backend, **attributes)
    return result


@pytest.mark.parametrize(
    ("size", "attributes", "with_shape"),
    [
        ((8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}, False),
        ((9, 7), {"kernel_shape": [3, 2], "strides": [3, 1], "pads": [0, 1, 0, 1]}, False),
        ((7, 5), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, True),
        ((12,), {"kernel_shape": [4], "strides": [4]}, False),
        ((4, 6, 2), {"kernel_shape": [2, 3, 1], "strides": [2, 3, 1]}, True),
    ],
)
def test_MaxUnpool_puts_back_what_MaxPool_took(
    xp: Backend, size: Any, attributes: Any, with_shape: bool
) -> None:
    x = drawn(2, 3, *size)
    pooled, indices = onnxruntime_run("MaxPool", x, opset=11, outputs=2, **attributes)
    shape = (np.array(x.shape),) if with_shape else ()
    expected = np.where(np.isin(np.arange(x.size).reshape(x.shape), indices), x, 0)
    assert_same(unpooled(xp, pooled, indices, *shape, **attributes), expected)


def test_a_larger_output_is_filled_up_behind(xp: Backend) -> None:
    x, indices = np.array([[[1.0, 2.0]]], np.float32), np.array([[[0, 3]]])
    y = unpooled(xp, x, indices, np.array([1, 1, 7]), kernel_shape=[2], strides=[2])
    assert y.tolist() == [[[1, 0, 0, 2, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("x", "indices", "shape", "attributes", "message"),
    [
        ((1, 1, 2), (1, 1, 3), (), {"kernel_shape": [2]}, "must be equal"),
        ((1, 1, 2), (1, 1, 2), (), {"kernel_shape": [2, 2]}, "kernel_shape"),
        ((1, 1, 2), (1, 1, 2), (), {"kernel_shape": [2], "strides": [0]}, "strides"),
        ((1, 1, 2), (1, 1, 2), (), {"kernel_shape": [2], "pads": [2, 2]}, "does not fit X"),
        ((1, 1, 2), (1, 1, 2), (1, 2, 9), {"kernel_shape": [2]}, "does not fit X"),
        ((1, 1, 2), (1, 1, 2), (9,), {"kernel_shape": [2]}, "does not fit X"),
        ((1, 1, 2), (1, 1, 2), (1, 1, -3), {"kernel_shape": [2]}, "does not fit X"),
        ((1, 1, 2), (1, 1, 2), (1, 1, 2**50), {"kernel_shape": [2]}, "bytes"),
    ],
)
def test_MaxUnpool_refuses(x: Any, indices: Any, shape: Any, attributes: Any, message: str) -> None:
    inputs = [drawn(*x), np.zeros(indices, np.int64)]
    inputs += [np.array(shape)] if shape else []
    with pytest.raises(SardonyxError, match=message):
        unpooled(HOST, *inputs, **attributes)


def test_an_index_out_of_range_is_told_where_the_library_can() -> None:
    with pytest.raises(SardonyxError, match="out of the range"):
        unpooled(HOST, drawn(1, 1, 1), np.array([[[9]]]), kernel_shape=[2])
