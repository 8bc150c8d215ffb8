"""NumPy for a run of ops of which notes are taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Condition, Within
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import NumpyBackend
from sardonyx.backends.saturation import can_saturate, saturated
from sardonyx.backends.written_out.choices import noted_choice
from sardonyx.backends.written_out.noted_array import NotedArray, noted_call
from sardonyx.backends.written_out.notes import Notes
from sardonyx.backends.written_out.prices import (
    PRICE_OF_STEP,
    price_by_element,
    price_of_check,
    price_of_saturation,
)


class NotingBackend(NumpyBackend):
    """NumPy, whose arrays note what is done with them."""

    def __init__(self, notes: Notes, *, steps: Backend | None = None) -> None:
        super().__init__()
        self._notes = notes
        # What runs a step as one call, if no notes can be taken of it.
        self._steps = steps
        self._before_step = 0

    def owns(self, value: object) -> bool:
        return isinstance(value, (NotedArray, np.ndarray))

    def begin_step(self) -> None:
        self._before_step = len(self._notes.calls)

    def deferred(
        self, call: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[Spec]
    ) -> Sequence[Any] | None:
        if self._steps is None:
            return None
        self._notes.drop_after(self._before_step)
        step = partial(_stepped, self._steps, call)
        results: tuple[Any, ...] = noted_call(
            self._notes, step, (list(arrays),), price=PRICE_OF_STEP, is_step=True
        )
        return results

    def require(self, x: Any, condition: Condition) -> None:
        if not isinstance(x, NotedArray):
            super().require(x, condition)
            return
        if isinstance(condition, Within) and condition.is_of_index:
            return
        part = x if condition.part is ... else x[condition.part]
        self._notes.demand(_require, (part, condition), price_of_check(part))

    def asarray(self, x: Any, *, dtype: Any = None, copy: bool | None = None) -> Any:
        if not isinstance(x, NotedArray):
            return noted_call(self._notes, np.array, (x,), {"dtype": dtype}, price=0.2)
        if dtype is not None and x.dtype != dtype:
            return x.astype(dtype)
        return x.copy() if copy else x

    def astype(self, x: Any, dtype: Any) -> Any:
        # Steps on the host run on NumPy before they are written out, too.
        if self._steps is not None or not can_saturate(x.dtype, dtype):
            return super().astype(x, dtype)
        return noted_call(self._notes, saturated, (x, dtype), price=price_of_saturation(x.size))

    def as_array(self, result: Any) -> Any:
        """Return a result of a step as an array, if it is a number of NumPy."""
        if not isinstance(result, NotedArray):
            return np.asarray(result)
        is_number = isinstance(result.value, np.generic)
        return noted_call(self._notes, np.asarray, (result,)) if is_number else result

    def cond(self, predicate: Any, when_true: Any, when_false: Any) -> Any:
        if not isinstance(predicate, NotedArray):
            return super().cond(predicate, when_true, when_false)
        before = self._before_step
        results = noted_choice(self._notes, predicate, when_true, when_false)
        self._before_step = before
        return results

    def by_element(self, function: Callable[[Any], Any], x: Any) -> Any:
        return noted_call(self._notes, function, (x,), price=price_by_element(x.size))

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        return super().take(self.asarray(x), indices, axis=axis)

    def take_in_range(self, x: Any, indices: Any) -> Any:
        return super().take_in_range(self.asarray(x), indices)

    def matmul(self, a: Any, b: Any) -> Any:
        if b.ndim != 2 or a.ndim < 3:
            return super().matmul(a, b)
        # One product of all rows takes less time than one for each matrix.
        *outer, inner = a.shape
        rows = a.reshape((math.prod(outer), inner))
        return super().matmul(rows, b).reshape((*outer, b.shape[1]))

    def matrix_transpose(self, x: Any) -> Any:
        return x.mT

    # Arrays that ops may write to are made anew by each call.

    def zeros(self, shape: Any, *, dtype: Any = None) -> Any:
        return self._made(np.zeros, shape, dtype)

    def ones(self, shape: Any, *, dtype: Any = None) -> Any:
        return self._made(np.ones, shape, dtype)

    def empty(self, shape: Any, *, dtype: Any = None) -> Any:
        return self._made(np.empty, shape, dtype)

    def zeros_like(self, x: Any, *, dtype: Any = None) -> Any:
        return self.zeros(x.shape, dtype=dtype or x.dtype)

    def ones_like(self, x: Any, *, dtype: Any = None) -> Any:
        return self.ones(x.shape, dtype=dtype or x.dtype)

    def full(self, shape: Any, fill_value: Any, *, dtype: Any = None) -> Any:
        return noted_call(self._notes, np.full, (shape, fill_value), {"dtype": dtype})

    def _made(self, function: Callable[..., Any], shape: Any, dtype: Any) -> Any:
        return noted_call(self._notes, function, (shape,), {"dtype": dtype}, price=0.2)

    def stack(self, arrays: Any, *, axis: int = 0) -> Any:
        return self.concat([self.expand_dims(x, axis) for x in arrays], axis=axis)


def _stepped(xp: Backend, call: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run a step on arrays, which must not change what it returns: it may be a table it keeps."""
    passed = list(map(id, arrays))
    results = tuple([r.copy() if id(r) in passed else r for r in call(xp, arrays)])
    for result in results:
        result.flags.writeable = False
    return results


def _require(part: Any, condition: Condition) -> None:
    # A single element is compared sooner by Python.
    holds = condition.holds(part.item()) if part.size == 1 else condition.holds(part).all()
    if not holds:
        raise BadData("an element does not meet a condition of its operator")
