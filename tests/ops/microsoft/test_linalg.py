from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results
from tests.support.types_present import needs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", None])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 4, 2), (1, 1, 1), (0, 3, 2), (5, 7, 40)])
def test_distances(xp: Backend, dtype: Any, metric: str | None, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(rows, k)).astype(dtype) for rows in (m, n))
    attributes = {} if metric is None else {"metric": metric}
    assert_agrees(xp, "CDist", a, b, ulps=16, **attributes)


def test_distances_of_equal_rows_are_no_nan(xp: Backend) -> None:
    a = np.random.default_rng(0).normal(100, 1, (50, 7)).astype(np.float32)
    found = results(xp, "CDist", a, a, metric="euclidean")
    assert np.all(np.diag(found) < 0.5)


@pytest.mark.parametrize(
    ("a", "b", "metric"),
    [((2, 3), (2, 4), "euclidean"), ((3,), (1, 3), "euclidean"), ((1, 3), (1, 3), "cosine")],
)
def test_distances_check_their_inputs(a: Any, b: Any, metric: str) -> None:
    with pytest.raises(InvalidInput, match=r"equally long rows|must be euclidean or"):
        results(HOST, "CDist", *(np.ones(shape, np.float32) for shape in (a, b)), metric=metric)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5, 5), (2, 0, 3, 3), (0, 0)])
def test_inverse(xp: Backend, dtype: Any, shape: Any) -> None:
    needs(xp, dtype)
    x = np.random.default_rng(0).normal(size=shape) + 3 * np.eye(shape[-1])
    x = x.astype(dtype)
    if x.size:
        assert_agrees(xp, "Inverse", x, ulps=64)
    else:
        assert results(xp, "Inverse", x).shape == shape


def test_a_singular_matrix_spoils_no_other(xp: Backend) -> None:
    x = np.stack([np.ones((2, 2)), np.eye(2) * 1e-30]).astype(np.float32)
    found = results(xp, "Inverse", x)
    assert not np.any(np.isfinite(found[0]))
    np.testing.assert_allclose(found[1], np.eye(2) * 1e30, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_inverse_of_no_square(shape: Any) -> None:
    with pytest.raises(InvalidInput, match="square matrices"):
        results(HOST, "Inverse", np.ones(shape, np.float32))
