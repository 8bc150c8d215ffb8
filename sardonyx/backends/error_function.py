"""The error function in float32, for NumPy, which has none.

erf(x) is tanh(x p(x²)): NumPy computes tanh of many numbers at once, and the smooth p needs few
operations beside it. The general form, for float64, takes ten times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Beyond 4 the function is 1 to the last bit.
MOST = np.float32(16)
# p(s) = atanh(erf(√s)) / √s for s up to that, highest power first: the polynomial of degree 8 whose
# largest relative error of erf is the least (a weighted Chebyshev fit), a quarter of a unit in the
# last place. With the rounding of each operation it is 3 units at most.
COEFFICIENTS = tuple(
    map(
        np.float32,
        (
            *(-1.640644225e-09, 5.391332055e-08, -5.150604090e-07, -1.861233622e-06),
            *(7.649001574e-05, -6.036814853e-04, -2.021516134e-04, 1.027713149e-01, 1.128379202e00),
        ),
    )
)


def error_function(x: Any) -> Any:
    """Return erf of an array in float32; NaN stays, and the sign of zero."""
    square = np.minimum(x * x, MOST)
    first, *others = COEFFICIENTS
    p = square * first
    for coefficient in others[:-1]:
        p += coefficient
        p *= square
    p += others[-1]
    p *= x
    return np.tanh(p)
