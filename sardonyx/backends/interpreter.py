"""NumPy for the steps of a program that is being compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sardonyx.backends import windows
from sardonyx.backends.numpy import NumpyBackend

# NumPy copies all windows of a convolution. For more bytes than these, the compiler is waited for.
MOST_COLUMNS = 2**26
# OpenBLAS multiplies up to this many pairs of numbers without its threads. For each small matrix of
# a stack it would wake them, and where oneDNN's threads run too, each wait took up to 50 ms.
MOST_FOR_ONE_THREAD = 2**18
# Fewer rows than these are no faster by themselves.
FEWEST_ROWS = 8


class Overtaken(Exception):  # noqa: N818  (a signal, not an error)
    """The compiled program is ready, or NumPy would take longer than to wait for it."""


class Interpreter(NumpyBackend):
    """NumPy, until a function says that the compiled program is ready; then it raises."""

    def __init__(self, is_overtaken: Callable[[], bool]) -> None:
        super().__init__()
        self._is_overtaken = is_overtaken

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

    def matmul(self, a: Any, b: Any) -> Any:
        if min(a.ndim, b.ndim) < 2 or a.ndim == b.ndim == 2 or not b.size:
            return super().matmul(a, b)
        count = a.shape[-2]
        rows = MOST_FOR_ONE_THREAD // math.prod(b.shape[-2:])
        if not FEWEST_ROWS <= rows < count:
            return super().matmul(a, b)
        parts = [a[..., start : start + rows, :] for start in range(0, count, rows)]
        return self.concat([super(Interpreter, self).matmul(part, b) for part in parts], axis=-2)

    def convolution(self, x: Any, weight: Any, **options: Any) -> Any:
        _, _, *kernel = weight.shape
        pads = zip(x.shape[2:], options["pads"], strict=True)
        padded = [size + sum(ends) for size, ends in pads]
        strides, dilations = options["strides"], options["dilations"]
        sizes = windows.output_sizes(padded, kernel, strides, dilations)
        if math.prod((*x.shape[:2], *kernel, *sizes)) * x.itemsize > MOST_COLUMNS:
            raise Overtaken
        return super().convolution(x, weight, **options)
