"""The array library whose arrays are symbols: each primitive becomes a node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.fusion.expressions import FUNCTIONS
from sardonyx.backends.fusion.nodes import CARRIED, DTYPES, Iota, Reduction
from sardonyx.backends.fusion.normalization import NormalizationFunctions, is_left_to_library
from sardonyx.backends.fusion.recording import BOOL
from sardonyx.backends.shape_backend import SHAPES

INT64 = np.dtype(np.int64)
# A reduction over more elements that are not neighbours is left to the library.
LONGEST_LOOP = 512


class Namespace:
    """The standard's functions on symbols: of each element, or calls of the library."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Namespace)

    def __hash__(self) -> int:
        return hash(Namespace)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> Any:
            record = TRACING.elementwise if name in FUNCTIONS else TRACING.opaque
            return record(name, *arguments, **options)

        return call


class TracingBackend(NormalizationFunctions):
    """Ops on symbols: creation and reductions here, the rest in the classes below."""

    name: ClassVar[str] = "fusion"
    attends = True

    def __init__(self) -> None:
        super().__init__(Namespace())

    # -- creation ---------------------------------------------------------------------------------

    def full(self, shape: Any, value: Any, *, dtype: Any = None) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        filling = self.asarray(value, dtype=dtype)
        if filling.dtype not in CARRIED:
            return self.opaque("full", shape, value, dtype=filling.dtype)
        return self.broadcast_to(filling, shape)

    def zeros(self, shape: Any, *, dtype: Any = None) -> Any:
        # Not the number 0, which float8e8m0 lacks.
        return self.full(shape, np.zeros((), dtype or np.float64))

    empty = zeros

    def ones(self, shape: Any, *, dtype: Any = None) -> Any:
        return self.full(shape, 1, dtype=dtype or np.float64)

    def zeros_like(self, x: Any, *, dtype: Any = None) -> Any:
        return self.zeros(x.shape, dtype=dtype or x.dtype)

    def ones_like(self, x: Any, *, dtype: Any = None) -> Any:
        return self.ones(x.shape, dtype=dtype or x.dtype)

    def full_like(self, x: Any, value: Any, *, dtype: Any = None) -> Any:
        return self.full(x.shape, value, dtype=dtype or x.dtype)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Any:
        first, last = (0, start) if stop is None else (start, stop)
        result = SHAPES.arange(first, last, step, dtype=dtype)
        if result.dtype.kind not in "iu" or not result.size:
            return self.opaque("arange", first, last, step, dtype=result.dtype)
        counted = self.symbol(Iota(shape=result.shape, dtype=INT64, axis=0))
        return self.astype(counted * int(step) + int(first), result.dtype)

    def tril(self, x: Any, *, k: int = 0) -> Any:
        return self.where(self._diagonal(x) <= k, x, self.zeros((), dtype=x.dtype))

    def triu(self, x: Any, *, k: int = 0) -> Any:
        return self.where(self._diagonal(x) >= k, x, self.zeros((), dtype=x.dtype))

    def _diagonal(self, x: Any) -> Any:
        """Return how far each element of a matrix lies above the main diagonal."""
        row, column = (
            self.symbol(Iota(shape=x.shape[-2:], dtype=INT64, axis=axis)) for axis in (0, 1)
        )
        return column - row

    # -- along axes -------------------------------------------------------------------------------

    def sum(self, x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("sum", x, axis, keepdims, {"dtype": dtype})

    def prod(self, x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("prod", x, axis, keepdims, {"dtype": dtype})

    def mean(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("mean", x, axis, keepdims, {})

    def max(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("max", x, axis, keepdims, {})

    def min(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("min", x, axis, keepdims, {})

    def all(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("all", x, axis, keepdims, {})

    def any(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._reduced("any", x, axis, keepdims, {})

    def _reduced(
        self, name: str, x: Any, axis: Any, keepdims: bool, options: dict[str, Any]
    ) -> Any:
        result = getattr(SHAPES, name)(x.blank, axis=axis, keepdims=keepdims, **options)
        given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = sorted({one % x.ndim for one in given if x.shape[one] != 1})
        others = [one for one in range(x.ndim) if one not in axes]
        length = math.prod(x.shape[one] for one in axes)
        is_by_row = all(x.shape[one] == 1 for one in others if axes and one > axes[0])
        in_rows = is_left_to_library(result.size, length)
        too_long = in_rows if is_by_row else length > LONGEST_LOOP
        if not x.size or too_long or not {x.dtype, result.dtype} <= DTYPES:
            return self.opaque(name, x, axis=axis, keepdims=keepdims, **options)
        computed_in = BOOL if name in ("any", "all") else result.dtype
        x = self.astype(self.permute_dims(x, (*others, *axes)), computed_in)
        if length > 1:
            short = SHAPES.reshape(result, tuple([x.shape[i] for i in range(len(others))]))
            fields = {"function": name, "computed_in": computed_in, "length": length}
            x = self._like(short, Reduction, x.node, is_by_row=is_by_row, **fields)
        return self.reshape(x, result.shape)


TRACING = TracingBackend()
