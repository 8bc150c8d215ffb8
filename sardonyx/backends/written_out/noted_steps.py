"""The steps of a large program as calls of NumPy, noted without computing what takes long."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay, Spec
from sardonyx.backends.operations.numbers import Levels
from sardonyx.backends.saturation import can_saturate
from sardonyx.backends.shape_arrays import (
    NoShapeRule,
    ShapeArray,
    joined_shape,
    product_shape,
    shape_array,
    taken_shape,
)
from sardonyx.backends.windows import WindowLayout
from sardonyx.backends.written_out.attention import with_attention
from sardonyx.backends.written_out.backend import NotingBackend
from sardonyx.backends.written_out.noted_array import NotedArray, noted_call
from sardonyx.backends.written_out.notes import (
    NotedCall,
    NotedValue,
    Notes,
    Place,
    Unnoted,
    mapped,
)
from sardonyx.backends.written_out.prices import (
    PRICE_OF_KERNEL,
    price_of_saturation,
    price_of_step,
)
from sardonyx.stopping import stop_if_asked

# More calls than these make a function that takes a tenth of a second to compile, in which no other
# thread runs.
MOST_CALLS = 5_000


class Kernel(Protocol):
    """What computes all of a step."""

    def run(self, *arrays: Any) -> Any:
        """Return the result, as a new array."""


@dataclass(frozen=True, eq=False, slots=True)
class NotedSteps:
    """What steps did with arrays."""

    calls: Sequence[NotedCall]
    # Where the arguments are, and the results.
    arguments: Sequence[Place]
    results: Sequence[Place]


class QuickNotes(Notes):
    """Notes of calls that are made on arrays without data, where these tell the result."""

    def __init__(self, *, are_of_sizes: bool = False) -> None:
        super().__init__(math.inf, are_of_sizes=are_of_sizes)

    def _result(
        self,
        function: Callable[..., Any],
        values: Sequence[Any],
        options: Mapping[str, Any],
        changes: NotedValue | None,
    ) -> Any:
        if changes is not None:
            return changes.value
        return mapped(_without_data, _result_like(function, values, options))

    def price_of_call(
        self, function: Callable[..., Any], values: Sequence[Any], result: Any
    ) -> float:
        """Return the microseconds that a compiled program may save of a call.

        BLAS multiplies floats as fast, and NumPy has none for other numbers.
        """
        if function in (np.matmul, np.ndarray.dot):
            return 0.0 if result.dtype.kind == "f" else result.size * values[0].shape[-1] / 1e3
        is_array = isinstance(result, np.ndarray)
        return super().price_of_call(function, values, result) if is_array else 0.0


def _result_like(
    function: Callable[..., Any], values: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return a result for arrays like these, computed of zeros if need be."""
    rule = _RULES.get(function)
    try:
        return (rule or function)(*values, **options)
    except (NoShapeRule, TypeError):  # A rule may lack an option.
        return function(*mapped(_zeros, values), **mapped(_zeros, dict(options)))


def _product_like(a: Any, b: Any) -> Any:
    return shape_array(product_shape(a, b), np.result_type(a.dtype, b.dtype))


def _joined_like(arrays: Sequence[Any], axis: int = 0) -> Any:
    dtype = np.result_type(*(array.dtype for array in arrays))
    return shape_array(joined_shape(arrays, axis), dtype)


def _chosen_like(condition: Any, a: Any, b: Any) -> Any:
    shape = np.broadcast_shapes(*(np.shape(_zeros(each)) for each in (condition, a, b)))
    kinds = [v.dtype if isinstance(v, (np.ndarray, np.generic)) else v for v in (a, b)]
    return shape_array(shape, np.result_type(*kinds))


def _taken_like(x: Any, indices: Any, axis: int) -> Any:
    return shape_array(taken_shape(x, indices, axis), x.dtype)


def _cast_like(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    return shape_array(x.shape, dtype)


def _padded_like(x: Any, widths: Any, **_: Any) -> Any:
    pairs = np.broadcast_to(np.asarray(widths), (x.ndim, 2)).tolist()
    shape = [before + n + after for n, (before, after) in zip(x.shape, pairs, strict=True)]
    return shape_array(shape, x.dtype)


# Of these NumPy would copy all elements, of weights too.
_RULES: Mapping[Any, Callable[..., Any]] = {
    np.concatenate: _joined_like,
    np.matmul: _product_like,
    np.pad: _padded_like,
    np.ndarray.dot: _product_like,
    np.ndarray.astype: _cast_like,
    np.ndarray.copy: lambda x: shape_array(x.shape, x.dtype),
    np.ndarray.take: _taken_like,
    np.where: _chosen_like,
}


def _without_data(value: Any) -> Any:
    is_plain = type(value) is np.ndarray or isinstance(value, np.generic)
    return shape_array(value.shape, value.dtype) if is_plain else value


def _zeros(value: Any) -> Any:
    """Return zeros that take no memory in place of an array without data."""
    if not isinstance(value, ShapeArray):
        return value
    return np.broadcast_to(np.zeros((), value.dtype), value.shape)


class NotingInterpreter(NotingBackend):
    """Notes steps for a library of NumPy that runs as a whole those of which no notes are taken.

    Products are calls of that library, too. None of these runs here: zeros stand for the results.
    """

    def __init__(
        self,
        notes: Notes,
        xp: Backend,
        kernel_of: Callable[[Any], Kernel | None],
        give_way: Callable[[], None],
    ) -> None:
        super().__init__(notes, steps=xp)
        self._xp = xp
        self._give_way = give_way
        # The kernel that a step is, if compiled programs call it, too.
        self._kernel_of = kernel_of
        # Bound methods are equal, but not the same object each time.
        self._product, self._cast = xp.matmul, xp.astype
        self._softmax, self._standardized = xp.softmax_of_rows, xp.standardized_rows
        self._normalized, self._reduced = xp.normalized_rows, xp.reduced_windows
        self._leveled = xp.nearest_levels

    def begin_step(self) -> None:
        super().begin_step()
        self._give_way()
        if len(self._notes.calls) > MOST_CALLS:
            raise Unnoted

    def deferred(
        self, call: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[Spec]
    ) -> Sequence[Any]:
        self._notes.drop_after(self._before_step)
        notes = self._notes
        like = tuple([shape_array(*spec) for spec in specs])
        kernel = self._kernel_of(call)
        if kernel is not None:
            run = partial(kernel_run, kernel)
            return [self._noted_kernel(run, arrays, {}, like[0], is_step=True)]
        step = partial(stepped, self._xp, call)
        price = price_of_step(sum(result.size for result in like))
        results: tuple[Any, ...] = noted_call(
            notes, step, (list(arrays),), price=price, is_step=True, result=like
        )
        return results

    def matmul(self, a: Any, b: Any) -> Any:
        if not isinstance(a, NotedArray) or not isinstance(b, NotedArray):
            a, b = self.asarray(a), self.asarray(b)
        like = _product_like(a, b)
        price = self._notes.price_of_call(np.matmul, (a, b), like)
        return noted_call(self._notes, self._product, (a, b), price=price, result=like)

    def has_kernels_of_rows(self, *arrays: Any) -> bool:
        return self._xp.has_kernels_of_rows(*arrays)

    def softmax_of_rows(self, x: Any, *, or_zero: bool = False) -> Any:
        return self._of_rows(self._softmax, (x,), or_zero=or_zero)

    def standardized_rows(self, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
        ones = (1,) * scale.ndim
        statistic = shape_array((*x.shape[: x.ndim - scale.ndim], *ones), x.dtype)
        like = shape_array(x.shape, x.dtype), statistic, statistic
        options = {"epsilon": epsilon}
        return self._noted_kernel(self._standardized, (x, scale, bias), options, like)

    def normalizes_rows(self, x: Any, scale: Any, bias: Any, *, is_centred: bool) -> bool:
        return self._xp.normalizes_rows(x, scale, bias, is_centred=is_centred)

    def normalized_rows(self, x: Any, scale: Any, bias: Any, **options: Any) -> Any:
        return self._of_rows(self._normalized, (x, scale, bias), **options)

    def has_kernels_of_levels(self, x: Any) -> bool:
        return self._xp.has_kernels_of_levels(x)

    def nearest_levels(self, x: Any, levels: Levels) -> Any:
        like = shape_array(x.shape, x.dtype)
        return self._noted_kernel(self._leveled, (x, levels), {}, like)

    def has_kernels_of_windows(self, x: Any) -> bool:
        return self._xp.has_kernels_of_windows(x)

    def reduced_windows(self, x: Any, layout: WindowLayout, *, by: Literal["max", "sum"]) -> Any:
        like = shape_array((*x.shape[:2], *layout.sizes(x.shape[2:])), x.dtype)
        return self._noted_kernel(self._reduced, (x, layout), {"by": by}, like)

    def _of_rows(self, function: Callable[..., Any], arrays: Sequence[Any], **options: Any) -> Any:
        like = shape_array(arrays[0].shape, arrays[0].dtype)
        return self._noted_kernel(function, arrays, options, like)

    def _noted_kernel(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        like: Any,
        *,
        is_step: bool = False,
    ) -> Any:
        return noted_call(
            self._notes,
            function,
            arguments,
            options,
            price=PRICE_OF_KERNEL,
            is_step=is_step,
            is_kernel=True,
            result=like,
        )

    def astype(self, x: Any, dtype: Any) -> Any:
        if not can_saturate(x.dtype, dtype):
            return super().astype(x, dtype)
        like = shape_array(x.shape, dtype)
        price = price_of_saturation(x.size)
        return noted_call(self._notes, self._cast, (x, dtype), price=price, result=like)

    def cond(self, *_: Any, **__: Any) -> Any:
        raise Unnoted  # Kernels of a branch would not be joined with others.

    def convolution(self, *_: Any, **__: Any) -> Any:
        raise Unnoted  # The whole step is one call.


def noted_steps(
    replay: Replay,
    xp: Backend,
    specs: Sequence[Spec],
    kernel_of: Callable[[Any], Kernel | None],
    give_way: Callable[[], None] = lambda: None,
    *,
    are_of_sizes: bool = False,
) -> NotedSteps | None:
    """Return what a program does with arrays like these; None if that cannot be written out.

    If notes `are_of_sizes`, others are taken for other sizes, and compared with them.

    `replay` is a function of a backend and of arrays; `give_way` is called between its steps. Those
    of which no notes can be taken become one call each, which `xp` runs. The prices of the calls
    leave out what a compiled program would do in the same time: products, and steps that are
    kernels.
    """
    notes = QuickNotes(are_of_sizes=are_of_sizes)
    noting = NotingInterpreter(notes, xp, kernel_of, give_way)
    try:
        arguments = [NotedArray(notes, shape_array(*spec)) for spec in specs]
        with noting.scope():
            results = [noting.as_array(result) for result in replay(noting, *arguments)]
    except Exception:  # Elements of zero may be refused; then the steps run one by one.
        return None
    if not all(isinstance(result, NotedArray) for result in results):
        return None
    places = [result.place for result in results]
    shapes = {argument.place: argument.shape for argument in arguments}
    calls = with_attention(notes.calls, shapes, places, xp)
    return NotedSteps(calls, [argument.place for argument in arguments], places)


def kernel_run(kernel: Kernel, *arrays: Any) -> Any:
    """Run a step that is a kernel. Its result is a new array."""
    stop_if_asked()
    return kernel.run(*arrays)


def stepped(xp: Backend, call: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run a step on arrays. Its results are new arrays, not arguments or tables that it keeps."""
    stop_if_asked()
    passed = set(map(id, arrays))
    results = map(np.asarray, call(xp, arrays))
    # In the order of the elements in memory, in which the next step adds them up.
    return tuple(
        [r if id(r) not in passed and r.flags.writeable else r.copy(order="K") for r in results]
    )
