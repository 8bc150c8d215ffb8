"""One operator of ai.onnx.ml, here and in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

import sardonyx
from sardonyx.backends.base import Backend
from tests.ops.oracle import onnxruntime_run

DOMAIN = "ai.onnx.ml"


def run_ml(xp: Backend, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The only result, or all of them, through the whole of the tracer."""
    options: dict[str, Any] = {"domain": DOMAIN, "outputs": outputs, "backend": xp}
    results = sardonyx.run_op(op, *inputs, **options, **attributes)
    return results if outputs == 1 else tuple(results)


def onnxruntime_ml(op: str, *inputs: np.ndarray, opset: int = 1, **attributes: Any) -> Any:
    known = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }
    return onnxruntime_run(op, *inputs, opset=opset, domain=DOMAIN, **known)


def assert_like(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal types and shapes, labels and integers, and numbers that are close."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    else:
        assert actual.tolist() == expected.tolist()


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> list[float]:
    """Numbers that a float attribute holds exactly."""
    values = np.random.default_rng([seed, *shape]).normal(size=shape) * scale
    return np.ravel(values.astype(np.float32)).tolist()


def strings(*values: str) -> np.ndarray:
    return np.asarray(values, dtype=object)
