"""By how much two values differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import isdtype, kind_of

# Largest error, relative to the largest element of a value, that is taken for rounding. Whole
# networks in float32 differ by some 1e-5 between libraries.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "complex64": 1e-4,
    "complex128": 1e-9,
}
# Of float8 and shorter types: one step between neighbours.
COARSE = 0.25
# Relative errors in powers of ten, from 1e-12 on; smaller ones are in the first bin.
DECADES = range(-12, 2)


@dataclass(frozen=True)
class Difference:
    """The differences of two values: `error` is the largest, relative to the largest element."""

    dtype: str
    shape: tuple[int, ...]
    error: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    ulps: float = 0.0
    cosine: float = 1.0
    tolerance: float = 0.0
    finding: str = ""
    histogram: tuple[int, ...] = ()

    @property
    def parts(self) -> bool:
        """Whether the values differ by more than the tolerance."""
        return bool(self.finding) or not self.error <= self.tolerance


def difference(a: Any, b: Any, tolerances: Mapping[str, float]) -> Difference:
    """Return by how much two values differ: arrays, sequences or maps of them, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = a.keys() == b.keys()
        a, b = (list(a.values()), [b.get(k) for k in a]) if keys else (list(a), list(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return Difference("sequence", (len(a),), finding=f"lengths {len(a)} and {len(b)}")
        found = [difference(one, other, tolerances) for one, other in zip(a, b, strict=True)]
        return max(found, key=_badness, default=Difference("sequence", (0,)))
    if a is None or b is None:
        finding = "" if a is b else "one of them is absent"
        return Difference("optional", (), finding=finding)
    return _of_arrays(np.asarray(a), np.asarray(b), tolerances)


def _badness(found: Difference) -> tuple[bool, float]:
    return found.parts, np.nan_to_num(found.error, nan=np.inf)


def _of_arrays(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerances: Mapping[str, float]
) -> Difference:
    name = "string" if a.dtype.kind in "OUS" else a.dtype.name
    other = "string" if b.dtype.kind in "OUS" else b.dtype.name
    if a.shape != b.shape:
        finding = f"shapes {list(a.shape)} and {list(b.shape)}"
        return Difference(name, a.shape, np.inf, finding=finding)
    if name != other:
        return Difference(name, a.shape, np.inf, finding=f"dtypes {name} and {other}")
    if not isdtype(a.dtype, ("real floating", "complex floating")):
        return _exact(name, a, b)
    wide = np.complex128 if kind_of(a.dtype) == "complex floating" else np.float64
    return _rounded(name, a.astype(wide), b.astype(wide), a.dtype, tolerances)


def _exact(name: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Difference:
    """Compare integers, booleans and strings, which have no rounding."""
    unequal = int(np.count_nonzero(a != b))
    if not unequal:
        return Difference(name, a.shape)
    finding = f"{unequal:,} of {a.size:,} elements differ"
    if name == "string":
        return Difference(name, a.shape, np.inf, np.inf, np.inf, finding=finding)
    x, y = a.astype(np.float64), b.astype(np.float64)
    apart = np.abs(x - y)
    scale = max(float(np.abs(x).max()), float(np.abs(y).max()), 1.0)
    error = float(apart.max()) / scale
    return Difference(name, a.shape, error, float(apart.max()), error, finding=finding)


def _rounded(
    name: str,
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    tolerances: Mapping[str, float],
) -> Difference:
    tolerance = tolerances.get(name, COARSE)
    if not a.size:
        return Difference(name, a.shape, tolerance=tolerance)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    broken = int(np.count_nonzero(~same & ~finite))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
        sizes = np.where(finite, np.maximum(np.abs(a), np.abs(b)), 0.0)
        scale = float(sizes.max()) or 1.0
        relative = np.where(apart > 0, apart / np.where(sizes > 0, sizes, scale), 0.0)
        info = ml_dtypes.finfo(dtype)
        steps = np.maximum(sizes * float(info.eps), float(info.smallest_subnormal))
        norms = float(np.linalg.norm(a[finite]) * np.linalg.norm(b[finite]))
        dot = abs(complex(np.vdot(a[finite], b[finite]))) if norms else 1.0
        sign = -1.0 if norms and np.vdot(a[finite], b[finite]).real < 0 else 1.0
    finding = f"{broken:,} elements are infinite or NaN in one of them" if broken else ""
    return Difference(
        name,
        a.shape,
        float(apart.max()) / scale,
        float(apart.max()),
        float(relative.max()),
        float((apart / steps).max()),
        sign * dot / norms if norms else 1.0,
        tolerance,
        finding,
        _histogram(apart / scale),
    )


def _histogram(errors: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Count the elements by the decade of their error; infinite ones are in the last bin."""
    edges = [0.0, *(10.0**power for power in DECADES), np.inf]
    clipped = np.minimum(errors.ravel(), 1e300)
    return tuple(int(count) for count in np.histogram(clipped, edges)[0])
