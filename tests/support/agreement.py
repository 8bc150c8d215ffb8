"""By how much results part from onnxruntime's, beside how much its own levels of optimizing do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Of the largest result.
EXACT = 1e-4
# A sum that is rounded to the other of two integers changes by one step.
COARSE = 2e-2


class Difference(NamedTuple):
    """The largest error of a result over its largest element; `why` is empty if it is allowed."""

    worst: float
    why: str = ""


def difference(expected: Any, other: Any, actual: Any, allowed: float) -> Difference:
    """Compare a result with onnxruntime's, `other` being that of its other level."""
    if isinstance(expected, Mapping):
        if set(expected) != set(actual):
            return Difference(np.inf, f"keys {sorted(actual)} instead of {sorted(expected)}")
        keys = list(expected)
        parts = ([each[key] for key in keys] for each in (expected, other, actual))
        return difference(*parts, allowed)
    if isinstance(expected, (list, tuple)):
        return of_all(expected, other, actual, allowed)
    if expected is None or actual is None:
        same = expected is None and actual is None
        return Difference(0.0, "" if same else "an optional result that the other has not")
    return _of_arrays(*(np.asarray(each) for each in (expected, other, actual)), allowed)


def of_all(
    expected: Sequence[Any], other: Sequence[Any], actual: Sequence[Any], allowed: float
) -> Difference:
    """Return the worst of several results, the first that is not allowed before all."""
    if len(expected) != len(actual):
        return Difference(np.inf, f"{len(actual)} results instead of {len(expected)}")
    found = [difference(*each, allowed) for each in zip(expected, other, actual, strict=True)]
    return max(found, key=lambda each: (bool(each.why), each.worst), default=Difference(0.0))


def _of_arrays(
    expected: np.ndarray, other: np.ndarray, actual: np.ndarray, allowed: float
) -> Difference:
    if expected.dtype.kind in "OUT" or actual.dtype.kind in "OUT":
        same = expected.shape == actual.shape and (expected == actual).all()
        return Difference(0.0) if same else Difference(np.inf, "other strings")
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        found, wanted = (f"{each.dtype}{each.shape}" for each in (actual, expected))
        return Difference(np.inf, f"{found} instead of {wanted}")
    a, b, c = (_wide(each) for each in (expected, other, actual))
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    # Results of onnxruntime's levels lie on both sides of the true one, and so may ours.
    spread = _farthest(a, b) if a.shape == b.shape else 0.0
    worst = _farthest(a, c) / (largest or 1.0)
    if np.allclose(a, c, rtol=0, atol=2 * spread + allowed * largest + 1e-7, equal_nan=True):
        return Difference(worst)
    off = f"off by {worst:.2g} of the largest, {largest:.2g}"
    return Difference(worst, f"{off}; onnxruntime itself by {spread:.2g}")


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _farthest(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of finite elements."""
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))
