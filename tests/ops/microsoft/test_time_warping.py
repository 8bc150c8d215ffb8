from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results


@pytest.mark.parametrize("shape", [(5, 9), (1, 4), (4, 1), (1, 1), (1, 12, 7), (30, 30)])
@pytest.mark.parametrize("kinds", [3, 1000])
def test_paths(xp: Backend, shape: Any, kinds: int) -> None:
    """With few kinds of costs, many paths cost the same."""
    costs = np.random.default_rng(0).integers(0, kinds, shape).astype(np.float32)
    assert_agrees(xp, "DynamicTimeWarping", costs)


def test_costs_may_be_negative_or_infinite() -> None:
    costs = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    costs[2, 3:6] = np.inf
    assert_agrees(HOST, "DynamicTimeWarping", costs)


def test_no_path() -> None:
    assert results(HOST, "DynamicTimeWarping", np.zeros((0, 3), np.float32)).shape == (2, 0)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_costs_are_one_matrix(shape: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a matrix"):
        results(HOST, "DynamicTimeWarping", np.zeros(shape, np.float32))
