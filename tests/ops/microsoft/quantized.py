"""Drawn integers, scales and zero points, and a node in both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
BYTES = [np.dtype(np.uint8), np.dtype(np.int8)]


def integers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def scales(*shape: int, seed: int = 0) -> np.ndarray:
    """Scales of two digits: their quotients leave many values halfway between integers."""
    drawn = np.random.default_rng([seed, *shape]).integers(1, 30, shape)
    return np.asarray(drawn / 100).astype(np.float32)


def assert_as_onnxruntime(
    xp: Backend, name: str, *inputs: Any, units: int = 0, **attributes: Any
) -> None:
    """Equal dtypes and shapes, and integers that differ by at most so many units."""
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, **attributes)
    result = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    elif expected.size:
        assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max() <= units
