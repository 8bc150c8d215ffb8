"""Convolutions on CuPy, of drawn shapes: the results, and the memory that they need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends import column_bands
from sardonyx.backends.column_bands import bands
from sardonyx.backends.numpy import HOST

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

gpu = pytest.mark.gpu

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(d) for d in ("float16", "float32", "float64", BFLOAT16, "int32")]


@dataclass(frozen=True)
class Case:
    """A convolution of small integers, whose results every dtype holds exactly."""

    x: np.ndarray[Any, Any]
    weight: np.ndarray[Any, Any]
    options: dict[str, Any]

    @classmethod
    def drawn(cls, seed: int, dtype: np.dtype[Any]) -> Case:
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(1, 4))
        groups, inner, filters = (int(n) for n in rng.integers(1, 4, 3))
        if rng.random() < 0.3:
            inner, groups = 1, groups + 2
        kernel = rng.integers(1, 4, rank)
        dilations = rng.integers(1, 3, rank)
        pads = rng.integers(0, 3, (rank, 2))
        least = np.maximum((kernel - 1) * dilations + 1 - pads.sum(axis=1), 1)
        sizes = least + rng.integers(0, 7, rank)
        shape = (int(rng.integers(1, 4)), groups * inner, *sizes)
        options = {
            "strides": tuple(rng.integers(1, 4, rank).tolist()),
            "pads": tuple(map(tuple, pads.tolist())),
            "dilations": tuple(dilations.tolist()),
            "groups": groups,
        }
        x = rng.integers(-2, 3, shape).astype(dtype)
        weight = rng.integers(-2, 3, (groups * filters, inner, *kernel)).astype(dtype)
        return cls(x, weight, options)

    def expected(self) -> np.ndarray[Any, Any]:
        wide = (self.x.astype(np.float64), self.weight.astype(np.float64))
        return np.asarray(HOST.convolution(*wide, **self.options))


def step_by_step(backend: CupyBackend, case: Case) -> np.ndarray[Any, Any]:
    with backend.scope():
        arrays = backend.put(case.x), backend.put(case.weight)
        return np.asarray(backend.fetch(backend.convolution(*arrays, **case.options)))


def fused(backend: CupyBackend, case: Case) -> np.ndarray[Any, Any]:
    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.convolution(x, weight, **case.options)]

    reasons: list[str] = []
    with backend.scope():
        arrays = backend.put(case.x), backend.put(case.weight)
        (found,) = backend.bind(convolved, arrays, reasons.append).run(*arrays)
        assert reasons == []
        return np.asarray(backend.fetch(found))


RUNS = [step_by_step, fused]


@gpu
@pytest.mark.parametrize("largest", [column_bands.LARGEST_COLUMNS, 256], ids=["whole", "bands"])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_drawn_convolutions(
    cupy_backend: CupyBackend,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    dtype: np.dtype[Any],
    run: Any,
    largest: int,
) -> None:
    monkeypatch.setattr(column_bands, "LARGEST_COLUMNS", largest)
    case = Case.drawn(DTYPES.index(dtype) * 100 + seed, dtype)
    found = run(cupy_backend, case)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float64), case.expected())


@gpu
@pytest.mark.parametrize("run", RUNS)
def test_several_filters_of_each_channel(cupy_backend: CupyBackend, run: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 3, 40)).astype(np.float32)
    weight = rng.integers(-3, 4, (6, 1, 31)).astype(np.float32)
    options = {"strides": (2,), "pads": ((15, 15),), "dilations": (1,), "groups": 3}
    case = Case(x, weight, options)
    np.testing.assert_array_equal(run(cupy_backend, case), case.expected())


@gpu
@pytest.mark.parametrize("run", RUNS)
def test_infinite_weights_meet_the_padding(cupy_backend: CupyBackend, run: Any) -> None:
    weight = np.array([[[np.inf, 1, 1]]], np.float32)
    options = {"strides": (1,), "pads": ((1, 1),), "dilations": (1,), "groups": 1}
    case = Case(np.ones((1, 1, 4), np.float32), weight, options)
    found = run(cupy_backend, case)
    # Infinity times a zero of the padding.
    np.testing.assert_array_equal(found, [[[np.nan, np.inf, np.inf, np.inf]]])


@gpu
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("shape", [(0, 2, 5, 5), (2, 0, 5, 5)])
def test_empty_convolutions(cupy_backend: CupyBackend, run: Any, shape: tuple[int, ...]) -> None:
    weight = np.ones((3, shape[1], 2, 2), np.float32)
    options = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1), "groups": 1}
    case = Case(np.ones(shape, np.float32), weight, options)
    np.testing.assert_array_equal(run(cupy_backend, case), case.expected())


@gpu
@pytest.mark.parametrize("run", RUNS)
def test_the_memory_of_columns_is_limited(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """The columns of all windows would need nine times the input, which is 1 MiB."""
    import cupy  # noqa: PLC0415

    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (1, 64, 64, 64)).astype(np.float32)
    weight = rng.integers(-3, 4, (8, 64, 3, 3)).astype(np.float32)
    options = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1}
    case = Case(x, weight, options)
    without_cudnn = cupy_backend._changed(uses_cudnn=False)
    needed = []
    for largest in (2**20, 2**28):
        monkeypatch.setattr(column_bands, "LARGEST_COLUMNS", largest)
        pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(pool.malloc):
            np.testing.assert_array_equal(run(without_cudnn, case), case.expected())
        needed.append(pool.total_bytes())
    assert needed[1] > 10 * x.nbytes
    # The input, its padded copy, the columns of a band, and the results.
    assert needed[0] < 5 * x.nbytes


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("sizes", [(5,), (4, 6), (3, 2, 5), (1, 1)])
@pytest.mark.parametrize("limit", [1, 40, 200, 10**6])
def test_bands_cover_each_window_once(
    monkeypatch: pytest.MonkeyPatch, batch: int, sizes: tuple[int, ...], limit: int
) -> None:
    monkeypatch.setattr(column_bands, "LARGEST_COLUMNS", limit)
    covered = np.zeros((batch, *sizes), int)
    for images, rows in bands(batch, sizes, 4):
        covered[images, rows] += 1
        columns = covered[images, rows].size
        assert columns * 4 <= limit or columns == math.prod(sizes[1:])
    np.testing.assert_array_equal(covered, 1)
