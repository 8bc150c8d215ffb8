"""Whether a plan's result is the expected one, and how it differs."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy.cudnn.frontend import rounds_float32

# A result may differ from the expected one by so much of the latter's largest element. Types of 16
# bits are rounded by 2^-8 of each element, once by cuDNN and after each step without it; where bias
# and sum almost cancel out, that is more of what is left.
TOLERANCE = 2**-6
# Of a trial in float32 or wider. On its numbers float32's sums, even one term after the other,
# differ by up to 2^-17, and sums of factors that were rounded to TF32 by 2^-12.
TOLERANCE_OF_WIDE = 2**-14


def tolerance_of_trials(dtype: np.dtype[Any], *, is_exact: bool) -> float:
    is_wide = dtype.itemsize > 4 or (dtype.itemsize == 4 and not rounds_float32(is_exact=is_exact))
    return TOLERANCE_OF_WIDE if is_wide else TOLERANCE


class NothingToCompare(Exception):  # noqa: N818  (a signal, not an error)
    """Nowhere are both arrays finite."""


def difference(found: Any, expected: Any, tolerance: float, *, is_trial: bool) -> str | None:
    """Return how two arrays differ where both are finite, or None if they agree.

    In a trial the others have to be equal, and NaN in the same places. The expected array may be
    the beginning of the other one.
    """
    found = found[tuple(slice(0, size) for size in expected.shape)]
    found, expected = (array.astype(cupy.float64) for array in (found, expected))
    both = cupy.isfinite(found) & cupy.isfinite(expected)
    is_same = (found == expected) | (cupy.isnan(found) & cupy.isnan(expected))
    if is_trial and not bool((both | is_same).all()):
        return _where_not_finite(found, expected, both | is_same)
    largest = cupy.where(both, cupy.abs(expected), 0).max()
    error = cupy.where(both, cupy.abs(found - expected), 0).max()
    has_any, largest, error = (float(x) for x in (both.any(), largest, error))
    if not has_any:
        raise NothingToCompare
    if error <= tolerance * largest:
        return None
    share = error / largest if largest else np.inf
    return f"it is off by {share:.2g} of the largest element"


def _where_not_finite(found: Any, expected: Any, is_right: Any) -> str:
    """Describe the first element that is wrong."""
    place = int(cupy.argmin(is_right.ravel()))
    wrong, right = (float(array.ravel()[place]) for array in (found, expected))
    count = is_right.size - int(is_right.sum())
    return f"NaN and infinities differ: {wrong} for {right}, in {count} of {is_right.size} elements"
