"""The two modules that run the same bodies, and models for them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import sardonyx.compat

MODULES = (onnxruntime, sardonyx.compat)
CPU = ["CPUExecutionProvider"]
X = np.arange(8, dtype=np.float32).reshape(2, 4)

both_modules = pytest.mark.parametrize("ort", MODULES, ids=["onnxruntime", "sardonyx"])


def parsed(text: str, opset: int = 20, ir: int = 10) -> onnx.ModelProto:
    imports = f'"": {opset}, "ai.onnx.ml": 3'
    return parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]> {text}")


TWO = parsed(
    "g (float[N,4] x, float[N,4] b) => (float[N,4] y, float[N,4] z) { y = Add(x,b) z = Mul(x,b) }"
)
FEEDS = {"x": X, "b": X}


def session(ort: ModuleType, model: onnx.ModelProto = TWO, **options: Any) -> Any:
    options.setdefault("providers", CPU)
    return ort.InferenceSession(model.SerializeToString(), **options)


def outcome(body: Callable[[ModuleType], Any], ort: ModuleType) -> Any:
    """What a body returns, or the class of its error: its name, and a built-in one among its bases.

    Onnxruntime's own classes are no built-in ones.
    """
    try:
        return body(ort)
    except Exception as error:
        kind = type(error)
        if kind.__module__ == "builtins":
            return kind.__name__
        found = next((b for b in kind.__mro__ if b in (ValueError, TypeError, RuntimeError)), None)
        return kind.__name__ if found is None else found.__name__


def same(body: Callable[[ModuleType], Any]) -> Any:
    """Run a body with both modules, require equal outcomes, and return that of onnxruntime."""
    expected, found = (outcome(body, ort) for ort in MODULES)
    assert_equal(found, expected)
    return expected


def assert_equal(found: Any, expected: Any) -> None:
    """Require equal values: containers and types exactly, numbers to rounding."""
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if expected.dtype == object:
            assert found.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        return
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_equal(list(found.values()), list(expected.values()))
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5)
    else:
        assert found == expected
