"""The steps of a program that is being compiled, on a library that needs no compiler.

That is NumPy for the CPU, and CuPy for a CUDA device (`backends/cupy/interpreter.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import numpy as np

from sardonyx.backends import windows
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import JoinableFunctions, KernelCalls, Replay, Spec
from sardonyx.backends.numpy import NumpyBackend
from sardonyx.backends.operations.numbers import Levels
from sardonyx.backends.saturation import can_saturate, saturated

# Bytes of all windows of a convolution, which NumPy copies. For more of them it takes longer than
# the compiler, which is waited for.
MOST_COLUMNS = 2**26
# OpenBLAS multiplies up to this many pairs of numbers without its threads. For each small matrix of
# a stack it would wake them, and where oneDNN's threads run too, each wait took up to 50 ms.
MOST_FOR_ONE_THREAD = 2**18
# Factors stay apart if their product is less than this, or more than its inverse: float32 might not
# hold it.
LEAST_SCALE = 2.0**-64
# Fewer rows than these are no faster by themselves.
FEWEST_ROWS = 8


class HostKernels(JoinableFunctions, Protocol):
    """Functions of NumPy's arrays that take less time than NumPy's own; most in float32."""

    def in_one_call(self, calls: KernelCalls) -> Replay:
        """Return `Backend.in_one_call` of a function that calls these."""

    def idle(self) -> AbstractContextManager[object]:
        """Return `Backend.idle_kernels`."""

    def reshaped(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Return the array in another shape, as a view if there is one."""

    def multiplied(self, a: Any, b: Any) -> Any:
        """Return the product of stacks of matrices, or None for one that NumPy is to compute."""

    def attended(self, queries: Any, keys: Any, values: Any, mask: Any, **options: Any) -> Any:
        """Return `Normalization.attended` with one scale, or None where steps are to do that."""

    def softmax(self, x: Any, *, or_zero: bool) -> Any:
        """Return the softmax along the last axis, or zeros for a row where that is NaN."""

    def standardized(self, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
        """Return `Normalization.standardized_rows`."""

    def by_root_mean_square(self, x: Any, scale: Any, *, epsilon: float) -> Any:
        """Return `Normalization.normalized_rows` that are not centred."""

    def nearest_levels(self, x: Any, levels: Levels) -> Any:
        """Return `Numbers.nearest_levels`."""

    def reduced_windows(
        self, x: Any, layout: windows.WindowLayout, *, by: Literal["max", "sum"]
    ) -> Any:
        """Return `Convolution.reduced_windows`."""

    def suppressed(self, boxes: Any, scores: Any, **options: Any) -> Any:
        """Return `Indexing.suppressed`."""


class Overtaken(Exception):  # noqa: N818  (a signal, not an error)
    """The compiled program is ready, or has to be waited for."""


class Overtakable(Backend):
    """A library whose steps end when a function says that the compiled program is ready."""

    _is_overtaken: Callable[[], bool]

    def begin_step(self) -> None:
        self._stop_if_overtaken()

    def _stop_if_overtaken(self) -> None:
        if self._is_overtaken():
            raise Overtaken

    def loop(self, condition: Callable[..., Any], body: Any, carry: Any) -> Any:
        def checked(*values: Any) -> Any:
            self._stop_if_overtaken()
            return condition(*values)

        return super().loop(checked, body, carry)

    def scan(self, step: Callable[[Any, Any], Any], *arguments: Any, **options: Any) -> Any:
        def checked(carry: Any, slices: Any) -> Any:
            self._stop_if_overtaken()
            return step(carry, slices)

        return super().scan(checked, *arguments, **options)


class Interpreter(Overtakable, NumpyBackend):
    """NumPy, until the compiled program is ready."""

    def __init__(
        self,
        is_overtaken: Callable[[], bool],
        kernels: HostKernels | None = None,
        *,
        is_final: bool = False,
    ) -> None:
        super().__init__()
        self._is_overtaken = is_overtaken
        self._kernels = kernels
        self._is_final = is_final

    def astype(self, x: Any, dtype: Any) -> Any:
        return saturated(x, dtype) if can_saturate(x.dtype, dtype) else super().astype(x, dtype)

    def matmul(self, a: Any, b: Any) -> Any:
        product = None if self._kernels is None else self._kernels.multiplied(a, b)
        if product is not None:
            return product
        if min(a.ndim, b.ndim) < 2 or a.ndim == b.ndim == 2 or not b.size:
            return super().matmul(a, b)
        count = a.shape[-2]
        rows = MOST_FOR_ONE_THREAD // math.prod(b.shape[-2:])
        if not FEWEST_ROWS <= rows < count:
            return super().matmul(a, b)
        parts = [a[..., start : start + rows, :] for start in range(0, count, rows)]
        return self.concat([super(Interpreter, self).matmul(part, b) for part in parts], axis=-2)

    def in_one_call(self, calls: KernelCalls) -> Replay:
        kernels = self._kernels
        return super().in_one_call(calls) if kernels is None else kernels.in_one_call(calls)

    def joinable_functions(self) -> JoinableFunctions | None:
        return self._kernels

    def idle_kernels(self) -> AbstractContextManager[object]:
        return nullcontext() if self._kernels is None else self._kernels.idle()

    def reshape(self, x: Any, shape: Any) -> Any:
        if self._kernels is None or x.flags.c_contiguous:
            return super().reshape(x, shape)
        return self._kernels.reshaped(x, shape)

    def has_kernels_of_rows(self, *arrays: Any) -> bool:
        return self._kernels is not None and all(a.dtype == np.float32 for a in arrays)

    def softmax_of_rows(self, x: Any, *, or_zero: bool = False) -> Any:
        return self._own_kernels.softmax(x, or_zero=or_zero)

    def attended(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        mask: Any,
        factors: Sequence[Any],
        *,
        or_zero: bool = False,
    ) -> Any:
        scale = _joint_scale(factors)
        if scale is not None:
            arrays, kernels = (queries, keys, values, mask), self._own_kernels
            result = kernels.attended(*arrays, scale=scale, or_zero=or_zero)
            if result is not None:
                return result
            # Keys may be a long cache.
            factors = None if scale == 1 else np.float32(scale), None, None, None
        of_queries, of_keys, of_scores, divisor = factors
        queries = queries if of_queries is None else queries * of_queries
        scores = self.matmul(queries, keys if of_keys is None else keys * of_keys)
        scores = scores if of_scores is None else scores * of_scores
        scores = scores if divisor is None else scores / divisor
        scores = scores if mask is None else scores + mask
        return self.matmul(self.softmax_of_rows(scores, or_zero=or_zero), values)

    def standardized_rows(self, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
        return self._own_kernels.standardized(x, scale, bias, epsilon=epsilon)

    def normalizes_rows(self, x: Any, scale: Any, bias: Any, *, is_centred: bool) -> bool:
        return not is_centred and self.has_kernels_of_rows(x, scale)

    def normalized_rows(
        self, x: Any, scale: Any, bias: Any, *, epsilon: float, is_centred: bool
    ) -> Any:
        return self._own_kernels.by_root_mean_square(x, scale, epsilon=epsilon)

    def has_kernels_of_levels(self, x: Any) -> bool:
        return self._kernels is not None and x.dtype == np.float32

    def nearest_levels(self, x: Any, levels: Levels) -> Any:
        return self._own_kernels.nearest_levels(x, levels)

    def has_kernels_of_windows(self, x: Any) -> bool:
        return self._kernels is not None and x.dtype == np.float32

    def reduced_windows(
        self, x: Any, layout: windows.WindowLayout, *, by: Literal["max", "sum"]
    ) -> Any:
        return self._own_kernels.reduced_windows(x, layout, by=by)

    @property
    def _own_kernels(self) -> HostKernels:
        assert self._kernels is not None
        return self._kernels

    def convolution(self, x: Any, weight: Any, **options: Any) -> Any:
        if not self._is_final and _count_window_bytes(x, weight, **options) > MOST_COLUMNS:
            raise Overtaken
        return super().convolution(x, weight, **options)


def _joint_scale(factors: Sequence[Any]) -> float | None:
    """Return what scores are times, by the factors of `attended`; None if that is not plain."""
    if any(each is not None and each.dtype != np.float32 for each in factors):
        return None
    *numbers, divisor = [1.0 if each is None else float(each.reshape(())) for each in factors]
    scale = math.prod(numbers) / divisor if divisor else math.inf
    return scale if LEAST_SCALE <= abs(scale) <= 1 / LEAST_SCALE else None


def _count_window_bytes(x: Any, weight: Any, **options: Any) -> int:
    """Return how many bytes all windows of a convolution have."""
    _, _, *kernel = weight.shape
    pads = zip(x.shape[2:], options["pads"], strict=True)
    padded = [size + sum(ends) for size, ends in pads]
    sizes = windows.output_sizes(padded, kernel, options["strides"], options["dilations"])
    return int(math.prod((*x.shape[:2], *kernel, *sizes)) * x.itemsize)


class NumpyTier:
    """NumPy for a backend on the CPU, which reads NumPy's arrays in place."""

    def __init__(
        self,
        backend: Backend,
        is_overtaken: Callable[[], bool],
        kernels: HostKernels | None = None,
        *,
        is_final: bool = False,
    ) -> None:
        self._backend = backend
        self._xp = Interpreter(is_overtaken, kernels, is_final=is_final)

    def run(self, replay: Replay, arrays: Sequence[Any], expected: Sequence[Spec]) -> list[Any]:
        backend, xp = self._backend, self._xp
        fetched = [backend.fetch(array) if backend.owns(array) else array for array in arrays]
        with xp.scope():
            results = list(map(np.asarray, replay(xp, *fetched)))
        if [xp.spec(result) for result in results] != list(expected):
            raise Overtaken
        passed = set(map(id, fetched))
        own = [_own(result, passed) for result in results]
        return own if backend.reads_host_memory else list(map(backend.put, own))

    def close(self) -> None:
        """Do nothing: NumPy retains no memory."""


def _own(result: np.ndarray[Any, Any], passed: Container[int]) -> np.ndarray[Any, Any]:
    """Return memory that no caller and no op has, by rows and read-only as that of programs is."""
    is_new = result.base is None and id(result) not in passed
    own = np.asarray(result, order="C") if is_new else result.copy()
    # An op may return a table that it keeps.
    own.setflags(write=False)
    return own
