"""Functions of each element, and of an array's numbers along an axis, that the standard lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array, Operand


class Levels(NamedTuple):
    """The numbers that are a whole number of steps from 0, from the least to the most of them."""

    step: float
    least: float
    most: float
    # Of how many steps the level is that NaN becomes.
    of_nan: float


class Numbers(Library):
    """Arithmetic beyond the standard's."""

    def bitcast(self, x: Array, dtype: Any) -> Array:
        """The bits of `x` as another type of the same size.

        By way of the host: the standard has no way to look at bits.
        """
        return self.put(self.fetch(x).view(self.numpy_dtype(dtype)))

    def by_element(self, function: Callable[[np.ndarray[Any, Any]], Any], x: Array) -> Array:
        """`function(x)`, computed on the host for each element: the shape is that of `x`."""
        return self.put(function(self.fetch(x)))

    def detached(self, x: Array) -> Array:
        """`x` as a constant: derivatives do not pass through it."""
        return x

    def fourier(
        self,
        real: Array,
        imaginary: Array | None = None,
        *,
        axis: int,
        dtype: np.dtype[Any],
        inverse: bool = False,
        double: bool = False,
        kept: int | None = None,
    ) -> tuple[Array, Array]:
        """The parts, in `dtype`, of the discrete Fourier transform along an axis.

        With `double` it is computed in complex128. A device that lacks this computes in `dtype`.
        The axis is counted from the front; `kept` is how many of its elements are returned.
        """
        through = self.dtype(np.dtype(np.complex128 if double else np.complex64))
        x = self.astype(real, through)
        if imaginary is not None:
            one = self.asarray(1j, dtype=through)
            x += self.multiply(self.astype(imaginary, through), one)
        y = self.fft(x, axis=axis, inverse=inverse)
        y = y[(*[slice(None)] * axis, slice(kept), ...)]
        y = self.astype(y, self.dtype(np.result_type(dtype, np.complex64)))
        return self.real(y), self.imag(y)

    def fft(self, x: Array, *, axis: int, inverse: bool = False) -> Array:
        """The discrete Fourier transform of complex numbers along an axis."""
        transforms = self._namespace.fft
        result: Array = (transforms.ifft if inverse else transforms.fft)(x, axis=axis)
        return result

    def fmod(self, a: Array, b: Array) -> Array:
        """The remainder of a division towards zero: exact, and with the sign of `a`."""
        if not self.isdtype(a.dtype, "integral"):
            return self.copysign(self.remainder(self.abs(a), self.abs(b)), a)
        floored = self.remainder(a, b)
        across = self.not_equal(floored, 0) & ((a < 0) ^ (b < 0))
        return self.where(across, floored - b, floored)

    def quotient(self, a: Array, b: Operand) -> Array:
        """`a / b`, rounded once to the dtype of `a`: a compiler may be less exact in `divide`."""
        return self.divide(a, b)

    def separate_product(self, a: Array, b: Array) -> Array:
        """`a * b` in float32, rounded before a sum that follows: a compiler may join the two."""
        return a * b

    def scaled_like(
        self,
        general: Callable[[Array, Array], Array],
        x: Array,
        scale: Array,
        dtype: np.dtype[Any],
    ) -> Array:
        """`general(x, scale)`, the product of integers or short floats and numbers of `dtype`.

        The scale is in float32, and so is the product before it is rounded to `dtype`. A form
        without that detour returns the same numbers.
        """
        return general(x, scale)

    def has_kernels_of_levels(self, x: Array) -> bool:
        """Whether there is a kernel for `nearest_levels` of arrays like this one."""
        return False

    def nearest_levels(self, x: Array, levels: Levels) -> Array:
        """The level that is nearest to each element; of two, the one of an even number of steps."""
        raise NotImplementedError

    def whole_where_near(self, x: Array) -> Array:
        """`x`, and the integer where a function that is not rounded exactly may have missed it."""
        return x

    def below_top(self, x: Array, top: Array) -> Array:
        """`x - top`, where `top` is the maximum of `x` along an axis: never more than 0.

        A compiler may join the difference with the product that computes `x`, and round only then:
        the rest of large numbers is then not 0 but up to half the distance between them.
        """
        is_top = self.equal(x, top) & self.isfinite(top)
        below = x - self.detached(top)
        # Also where it is 0 it grows as `x` does, or equal numbers would get no gradient.
        return self.where(is_top, below - self.detached(below), below)

    def nonzero_total(self, total: Array) -> Array:
        """A sum of exponentials, or another number where it is 0 because all of them are."""
        return self.where(self.equal(total, 0), self.ones_like(total), total)

    def erf(self, x: Array) -> Array:
        """The error function, to the precision of `x`."""
        size = self.abs(x)
        near = self.square(self.minimum(size, 0.5))
        near_top, near_bottom = _rational(near, _NEAR_TOP, _NEAR_BOTTOM, 3)
        # Beyond 6 the function is 1 to the last bit, so the middle range may serve for the far one.
        middle = self.minimum(size, 6.0)
        top, bottom = _rational(middle, _MIDDLE_TOP, _MIDDLE_BOTTOM, 7)
        far = self.copysign(1.0 - self.exp(-self.square(middle)) * top / bottom, x)
        result = self.where(size <= 0.5, x * near_top / near_bottom, far)
        return self.where(self.isnan(x), x, result)


# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# three ranges of |x|, each to full float64 precision.
_NEAR_TOP = (
    3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02,
    3.20937758913846947e03, 1.85777706184603153e-1,
)  # fmt: skip
_NEAR_BOTTOM = (
    2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03,
    2.84423683343917062e03,
)  # fmt: skip
_MIDDLE_TOP = (
    5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01,
    2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03,
    2.05107837782607147e03, 1.23033935479799725e03, 2.15311535474403846e-8,
)  # fmt: skip
_MIDDLE_BOTTOM = (
    1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02,
    1.62138957456669019e03, 3.29079923573345963e03, 4.36261909014324716e03,
    3.43936767414372164e03, 1.23033935480374942e03,
)  # fmt: skip


def _rational(
    x: Array, top: Sequence[float], bottom: Sequence[float], steps: int
) -> tuple[Array, Array]:
    above, below = top[-1] * x, x
    for i in range(steps):
        above, below = (above + top[i]) * x, (below + bottom[i]) * x
    return above + top[steps], below + bottom[steps]
