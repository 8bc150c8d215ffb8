"""Integers by which integers are multiplied, found from a few sums of these products."""

from __future__ import annotations

from typing import Any

import numpy as np

# Sums of products of such numbers with sizes are exact in 64 bits.
LARGEST = 2**31


def nearest_factors(terms: np.ndarray[Any, Any], sums: np.ndarray[Any, Any]) -> Any:
    """Return the integers by which each term is multiplied, for rows of terms and of their sums.

    Each column of sums has its own factors. Whoever needs exact ones tries them; None if there are
    only large ones.

    >>> nearest_factors(np.array([[1, 2], [1, 5]]), np.array([[7], [13]])).tolist()
    [[3], [2]]
    """
    if not (abs(sums) <= LARGEST).all():
        return None
    factors = np.round(np.linalg.lstsq(terms.astype(np.float64), sums.astype(np.float64))[0])
    return None if (abs(factors) > LARGEST).any() else factors.astype(np.int64)
