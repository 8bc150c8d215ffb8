"""The kernels that run steps on arrays of the host, in the place of functions of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from sardonyx.backends.executable import KernelCalls, Replay
from sardonyx.backends.jax.onednn import loaded, rows, windows
from sardonyx.backends.jax.onednn.attention import attended
from sardonyx.backends.jax.onednn.copies import reshaped
from sardonyx.backends.jax.onednn.one_call import OneCall, OneCallBySizes
from sardonyx.backends.jax.onednn.points import FUNCTIONS, nearest_levels, of_elements
from sardonyx.backends.jax.onednn.stacks import multiplied
from sardonyx.backends.jax.onednn.sums import averaged, can_be_summed, summed
from sardonyx.backends.jax.onednn.suppression import suppressed
from sardonyx.backends.operations.numbers import Levels
from sardonyx.backends.windows import WindowLayout


@dataclass(frozen=True)
class HostKernels:
    """Kernels for arrays of NumPy that are new in each call, with a number of threads or all."""

    threads: int | None = None

    def in_one_call(self, calls: KernelCalls) -> Replay:
        """The function, whose kernels run in one call if it does nothing else than to call them."""
        passed = calls.constants, calls.own, self.threads
        if calls.variables is None:
            return OneCall(calls.function, *passed)
        return OneCallBySizes(calls.function, calls.variables, *passed)

    def idle(self) -> AbstractContextManager[object]:
        """A context in which kernels that this thread calls compute nothing."""
        return loaded.only_noted()

    def has_elements_of(self, function: Any) -> bool:
        """Whether there are kernels of this function of arrays' elements."""
        return function in FUNCTIONS

    def of_elements(self, function: Any, *operands: Any) -> Any:
        """Such a function of arrays in float32, of which one may be a number."""
        return of_elements(function, *operands, threads=self.threads)

    def has_sums_over(self, axes: Sequence[int]) -> bool:
        """Whether there are kernels of sums over these axes."""
        return can_be_summed(axes)

    def summed(self, x: Any, axes: Sequence[int], *, keepdims: bool) -> Any:
        """Such sums of an array in float32."""
        return summed(x, axes, keepdims=keepdims, threads=self.threads)

    def averaged(self, x: Any, axes: Sequence[int], *, keepdims: bool) -> Any:
        """The means of what such sums are of."""
        return averaged(x, axes, keepdims=keepdims, threads=self.threads)

    def reshaped(self, x: Any, shape: tuple[int, ...]) -> Any:
        """The array in another shape, as a view if there is one."""
        return reshaped(x, shape, self.threads)

    def multiplied(self, a: Any, b: Any) -> Any:
        """The product of two stacks of matrices, or None for one that NumPy is to compute."""
        return multiplied(a, b, threads=self.threads)

    def attended(self, queries: Any, keys: Any, values: Any, mask: Any, **options: Any) -> Any:
        """Attention of arrays in float32; None where its steps are to run one by one."""
        return attended(queries, keys, values, mask, **options, threads=self.threads)

    def softmax(self, x: Any, *, or_zero: bool) -> Any:
        """The softmax of float32 along the last axis, or zeros for a row where that is NaN."""
        return rows.softmax(x, or_zero=or_zero, threads=self.threads)

    def standardized(self, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
        """Rows of float32 with mean 0 and variance 1, scaled; means and inverse deviations."""
        return rows.standardized(x, scale, bias, epsilon=epsilon, threads=self.threads)

    def by_root_mean_square(self, x: Any, scale: Any, *, epsilon: float) -> Any:
        """Rows of float32 by their root mean squares, scaled."""
        return rows.by_root_mean_square(x, scale, epsilon=epsilon, threads=self.threads)

    def nearest_levels(self, x: Any, levels: Levels) -> Any:
        """The level that is nearest to each element of float32."""
        return nearest_levels(x, levels, threads=self.threads)

    def reduced_windows(self, x: Any, layout: WindowLayout, *, by: Literal["max", "sum"]) -> Any:
        """Maximum or sum over each window of float32, without the padding."""
        return windows.reduced(x, layout, by=by, threads=self.threads)

    def suppressed(self, boxes: Any, scores: Any, **options: Any) -> Any:
        """`Indexing.suppressed` of arrays in float32; None where NumPy is to compute it."""
        return suppressed(boxes, scores, **options, threads=self.threads)
