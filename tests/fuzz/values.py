"""What a value of a random graph is: an array, and how far runtimes may be apart on it.

A value is exact if every runtime must find these very elements. Of any other there are copies that
were computed with noise in each step, as large as what the step's operator allows for. Their
distance from the array says how far rounding may carry a runtime, however a graph magnifies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import is_low_precision, isdtype
from sardonyx.graph.standard.types import DType
from tests.fuzz.graph import Array

COPIES = 3
# A value of which no more is certain than this share is of no use to compare with.
VAGUE = 0.02


class Unstable(Exception):  # noqa: N818  (named for what it says, as sardonyx's errors are)
    """Rounding could change the result altogether, so that runtimes cannot be compared on it."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array, or a list of arrays, with noisy copies of it unless it is exact."""

    data: Any
    copies: tuple[Any, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.copies

    def copy(self, index: int) -> Any:
        return self.copies[index] if self.copies else self.data

    @property
    def arrays(self) -> list[Array]:
        return parts(self.data)

    def tolerances(self) -> list[Array | None]:
        """For each array how far another runtime may be from each of its elements."""
        if self.exact:
            return [None] * len(self.arrays)
        columns = zip(*(parts(copy) for copy in self.copies), strict=True)
        return [_tolerance(array, noisy) for array, noisy in zip(self.arrays, columns, strict=True)]


def parts(data: Any) -> list[Array]:
    return list(data) if isinstance(data, list) else [data]


def is_float(dtype: DType) -> bool:
    """Whether it is rounded little enough for noise to mean anything."""
    return isdtype(dtype, "real floating") and (
        not is_low_precision(dtype) or ml_dtypes.finfo(dtype).bits >= 16
    )


def wide(array: Array) -> Array:
    return array.astype(np.float64)


def largest(array: Array) -> float:
    """The largest finite magnitude."""
    magnitudes = np.abs(wide(array))
    return float(np.max(magnitudes, initial=0, where=np.isfinite(magnitudes)))


def with_noise(array: Array, ulps: float, scale: float, rng: np.random.Generator) -> Array:
    """The array with every element moved, by about as much as a runtime may differ in one step."""
    if not is_float(array.dtype):
        return array
    limits = ml_dtypes.finfo(array.dtype)
    unit = ulps * float(limits.eps)
    sizes = unit * np.abs(wide(array)) + unit * scale + float(limits.smallest_normal)
    signs = rng.choice([-1.0, 1.0], array.shape) * rng.uniform(0.5, 1, array.shape)
    most = float(limits.max)
    with np.errstate(all="ignore"):
        moved = np.clip(wide(array) + signs * sizes, -most, most).astype(array.dtype)
    # A zero may have either sign, and keeps its place: x / 0 is to be seen as uncertain.
    zeros = np.where(rng.random(array.shape) < 0.5, 0.0, -0.0).astype(array.dtype)
    moved = np.where((array == 0) & (scale == 0), zeros, moved)
    return np.asarray(np.where(np.isfinite(array.astype(np.float64)), moved, array), array.dtype)


def require_stable(array: Array, noisy: Array) -> None:
    """Refuse a result that noise changes by more than rounding can be made good for."""
    if array.shape != noisy.shape or array.dtype != noisy.dtype:
        raise Unstable("its shape depends on rounding")
    if not is_float(array.dtype):
        if not np.array_equal(array, noisy):
            raise Unstable("its elements depend on rounding")
        return
    one, other = wide(array), wide(noisy)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        raise Unstable("where it is infinite depends on rounding")
    if not np.isfinite(other[finite]).all():
        raise Unstable("where it is infinite depends on rounding")
    if largest(array) > float(ml_dtypes.finfo(array.dtype).max) ** 0.5:
        raise Unstable("on the way to it, one runtime may overflow and another not")
    apart = np.abs(one[finite] - other[finite])
    if np.max(apart, initial=0) > VAGUE * max(largest(array), 1e-3):
        raise Unstable("rounding leaves too little of it")


def _tolerance(array: Array, noisy: tuple[Array, ...]) -> Array | None:
    if not is_float(array.dtype):
        return None
    limits = ml_dtypes.finfo(array.dtype)
    with np.errstate(all="ignore"):
        apart = np.stack([np.abs(wide(copy) - wide(array)) for copy in noisy])
    spread = np.nan_to_num(apart, nan=0, posinf=0).max(axis=0)
    # Copies that happen to agree in one place say little of it; so the usual distance counts too.
    usual = float(spread.mean()) if spread.size else 0.0
    floor = 4 * float(limits.eps) * np.abs(wide(array)) + float(limits.smallest_normal)
    return np.asarray(3 * spread + usual + floor)
