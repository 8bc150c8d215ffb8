"""NumPy: the oracle, and the place where static values are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends import blas_threads, few_rows, windows
from sardonyx.backends.axis_sums import sum_as_product
from sardonyx.backends.base import Backend
from sardonyx.backends.dlpack import on_host
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.error_function import error_function
from sardonyx.backends.executable import Replay, Spec
from sardonyx.backends.mapped_files import read_by_rows
from sardonyx.backends.rounding import prepared
from sardonyx.backends.selection import selected
from sardonyx.backends.strides import extent

# Bytes of the windows that a convolution copies at once. NumPy gives the memory of larger arrays
# back after each operation, and to get and clear it took up to eight times as long as the copies.
MOST_WINDOWS = 2**22
# Bytes of a table from which the system would read ahead of each row.
LARGE_TABLE = 2**20


class NumpyLike(Backend):
    """The operations that NumPy and CuPy share."""

    attends = True
    follows_numpy: ClassVar[bool] = True

    def infer(self, function: Replay, *specs: Spec) -> list[Spec]:
        """Run the function on zeros."""
        with self.scope():
            return [self.spec(result) for result in function(*map(self._zeros, specs))]

    def _zeros(self, spec: Spec) -> Any:
        """Return zeros, or empty strings, that take no memory."""
        if spec.dtype.hasobject:
            return np.broadcast_to(np.array("", object), spec.shape)
        return self.broadcast_to(self.zeros((), dtype=self.dtype(spec.dtype)), spec.shape)

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        return isdtype(dtype, kind)

    def astype(self, x: Any, dtype: Any) -> Any:
        if x.dtype == dtype:
            return x
        return prepared(x, np.dtype(dtype)).astype(dtype, copy=False)

    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        self.allow_padded(x, widths)
        return self._namespace.pad(x, widths, constant_values=value)

    def gather(self, x: Any, places: Any) -> Any:
        return x[tuple(places)]

    def scatter(self, x: Any, places: Any, updates: Any, combine: str | None = None) -> Any:
        result = x.copy()
        self._write_to(result, tuple(places), updates, combine)
        return result

    def _write_to(self, out: Any, key: Any, updates: Any, combine: str | None) -> None:
        """Write the updates to `out[key]`, or combine them with the elements there."""
        if combine is None:
            out[key] = updates
        else:
            into = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}[combine]
            getattr(self._namespace, into).at(out, key, updates)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        return x.view(dtype)

    def fmod(self, a: Any, b: Any) -> Any:
        return self._namespace.fmod(a, b)

    def matmul(self, a: Any, b: Any) -> Any:
        return self._in_float32(self._namespace.matmul, a, b)

    def sum(self, x: Any, **options: Any) -> Any:
        return self._in_float32(self._namespace.sum, x, **options)

    def prod(self, x: Any, **options: Any) -> Any:
        return self._in_float32(self._namespace.prod, x, **options)

    def mean(self, x: Any, **options: Any) -> Any:
        if not x.size:
            # NumPy warns of the mean of an empty array despite `errstate`; here it is just NaN.
            total = self.sum(x, **options)
            return total / total.dtype.type(0)
        return self._in_float32(self._namespace.mean, x, **options)

    def attention(
        self, q: Any, k: Any, v: Any, bias: Any = None, *, scale: float, is_guarded: bool = False
    ) -> Any:
        """The scores are written once, and changed where they are."""
        if q.dtype.itemsize < 4:
            return super().attention(q, k, v, bias, scale=scale, is_guarded=is_guarded)
        scores: Any = self.attention_scores(q, k, scale)
        if bias is not None:
            scores += bias
        top = scores.max(axis=-1, keepdims=True)
        scores -= top
        self._namespace.exp(scores, out=scores)
        if is_guarded:
            scores = self._namespace.where(self._namespace.isfinite(top), scores, 0)
        total = self.sum(scores, axis=-1, keepdims=True)
        mixed: Any = self.attention_mix(scores, v)
        mixed /= self._namespace.where(total == 0, 1, total) if is_guarded else total
        return mixed

    def convolution(
        self, x: Any, weight: Any, *, strides: Any, pads: Any, dilations: Any, groups: int
    ) -> Any:
        """One strided view of all windows, so that gathering them is a single copy."""
        kernel = weight.shape[2:]
        columns = self.windows_of(x, kernel, strides=strides, pads=pads, dilations=dilations)
        return self.product_of_columns(columns, weight, groups)

    def windows_of(
        self, x: Any, kernel: Sequence[int], *, strides: Any, pads: Any, dilations: Any
    ) -> Any:
        """A view (N, C, *kernel, *sizes) of the padded array."""
        spatial = tuple(range(2, x.ndim))
        inner = tuple(range(x.ndim, 2 * x.ndim - 2))
        extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
        x = self.pad(x, [(0, 0), (0, 0), *pads], 0) if any(map(any, pads)) else x
        steps = (slice(None, None, step) for step in (1, 1, *strides, *dilations))
        view = self._windows(x, extents)[tuple(steps)]
        return view.transpose((0, 1, *inner, *spatial))

    def _windows(self, x: Any, sizes: Sequence[int]) -> Any:
        """All windows over the spatial axes: a view, whose last axes are those of a window."""
        spatial = tuple(range(2, x.ndim))
        return self._namespace.lib.stride_tricks.sliding_window_view(x, sizes, axis=spatial)

    def strides(self, x: Any) -> tuple[int, ...]:
        return tuple(step // x.itemsize for step in x.strides)

    def elements_at(self, x: Any, steps: Any) -> Any:
        return self._strided(x.reshape(-1), x.shape, steps)

    def with_strides(self, x: Any, steps: Any) -> Any:
        buffer = self.zeros(extent(x.shape, steps), dtype=x.dtype)
        array = self._strided(buffer, x.shape, steps)
        array[...] = x
        return array

    def write(self, out: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        value = function(self, *arguments)
        if value is not out:
            # A copy that overlaps itself has no order among the threads of a GPU.
            apart = value.copy() if self._namespace.may_share_memory(out, value) else value
            out[...] = apart
        return out

    def _strided(self, buffer: Any, shape: Any, steps: Any) -> Any:
        in_bytes = tuple(step * buffer.itemsize for step in steps)
        return self._namespace.lib.stride_tricks.as_strided(buffer, shape, in_bytes)

    def sort(self, x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        ordered = self._namespace.sort(x, axis=axis, kind="stable" if stable else None)
        return self._namespace.flip(ordered, axis=axis) if descending else ordered

    def argsort(
        self, x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        if not descending:
            return self._namespace.argsort(x, axis=axis, kind="stable" if stable else None)
        # Sorted backwards twice, so that equal elements stay in their order.
        backwards = self._namespace.argsort(self.flip(x, axis=axis), axis=axis, kind="stable")
        return x.shape[axis] - 1 - self.flip(backwards, axis=axis)

    @staticmethod
    def _in_float32(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
        """Accumulate floats narrower than float32 in it, and round once."""
        dtype = arrays[0].dtype
        if dtype.itemsize >= 4 or not isdtype(dtype, "real floating"):
            return function(*arrays, **options)
        wide = (a.astype(np.float32) for a in arrays)
        return function(*wide, **options).astype(dtype)


@contextmanager
def _value_error_for_bounds() -> Iterator[None]:
    """Raise `ValueError` instead of `IndexError`: an index out of range is a bad value."""
    try:
        yield
    except IndexError as error:
        raise ValueError(str(error)) from error


class NumpyBackend(NumpyLike):
    name: ClassVar[str] = "numpy"
    takes_numpy = True
    holds_strings: ClassVar[bool] = True

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(np)
        self._threads = threads

    def __reduce__(self) -> Any:
        return "HOST" if self is HOST else (type(self), (self._threads,))

    def scope(self) -> AbstractContextManager[object]:
        # Infinities and NaN are ordinary results: no GPU warns of 1 / 0 either.
        return blas_threads.limited(np.errstate(all="ignore"), self._threads)

    @property
    def limits_threads(self) -> bool:
        return self._threads is not None

    def with_threads(self, threads: int) -> Backend:
        blas_threads.require()
        return NumpyBackend(threads)

    def steps_on_numpy(self, *, is_final: bool = False) -> Backend:
        return self

    def owns(self, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        return value

    def sum(self, x: Any, **options: Any) -> Any:
        total = sum_as_product(x, **options)
        return super().sum(x, **options) if total is None else total

    def mean(self, x: Any, **options: Any) -> Any:
        total = sum_as_product(x, **options) if x.size else None
        if total is None:
            return super().mean(x, **options)
        return total / x.dtype.type(x.size // total.size)

    def matmul(self, a: Any, b: Any) -> Any:
        return few_rows.product(a, b) if few_rows.are_few(a, b) else super().matmul(a, b)

    def adopt(self, value: Any) -> Any:
        return on_host(value)

    def shield(self, value: Any) -> Any:
        view: np.ndarray[Any, Any] = value.view()
        view.flags.writeable = False
        return view

    def convolution(self, x: Any, weight: Any, **layout: Any) -> Any:
        """A few images at a time, whose windows stay in the processor's cache."""
        kernel, pads = weight.shape[2:], layout["pads"]
        padded = [size + sum(ends) for size, ends in zip(x.shape[2:], pads, strict=True)]
        sizes = windows.output_sizes(padded, kernel, layout["strides"], layout["dilations"])
        bytes_of_image = math.prod((x.shape[1], *kernel, *sizes)) * x.itemsize
        together = max(MOST_WINDOWS // max(bytes_of_image, 1), 1)
        if len(x) <= together:
            return super().convolution(x, weight, **layout)
        y: Any = None
        for start in range(0, len(x), together):
            self.begin_step()
            images = slice(start, start + together)
            part = super().convolution(x[images], weight, **layout)
            if y is None:
                shape = len(x), *part.shape[1:]
                self.allow(shape, part.dtype)
                y = np.empty(shape, part.dtype)
            y[images] = part
        return y

    # The methods of arrays, which take a fraction of the time of NumPy's functions for them.

    def reshape(self, x: Any, shape: Any) -> Any:
        return x.reshape(shape)

    def argsort(
        self, x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        if descending:
            return super().argsort(x, axis=axis, descending=True)
        return x.argsort(axis=axis, kind="stable" if stable else None)

    def expand_dims(self, x: Any, axis: Any = 0) -> Any:
        if type(axis) is not int or not 0 <= axis <= x.ndim:
            return np.expand_dims(x, axis)
        return x.reshape((*x.shape[:axis], 1, *x.shape[axis:]))

    def stack(self, arrays: Any, *, axis: int = 0) -> Any:
        shapes = {x.shape for x in arrays}
        if axis or len(shapes) != 1 or arrays[0].dtype.hasobject:
            return np.stack(arrays, axis=axis)
        return np.array(arrays)

    def concat(self, arrays: Any, *, axis: int = 0) -> Any:
        if len(arrays) > 0:
            self.allow((sum([x.size for x in arrays]),), arrays[0].dtype)
        return np.concatenate(arrays, axis=axis)

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        if axis == 0 and x.nbytes >= LARGE_TABLE:
            with read_by_rows(x, indices.size):
                return self._taken(x, indices, axis)
        return self._taken(x, indices, axis)

    def _taken(self, x: Any, indices: Any, axis: int) -> Any:
        try:  # Without the context manager, which takes longer than a small lookup.
            return x.take(indices, axis=axis)
        except IndexError as error:
            raise ValueError(str(error)) from error

    def take_in_range(self, x: Any, indices: Any) -> Any:
        return x.take(indices, axis=0)

    @_value_error_for_bounds()
    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        return np.take_along_axis(x, indices, axis=axis)

    @_value_error_for_bounds()
    def gather(self, x: Any, places: Any) -> Any:
        return super().gather(x, places)

    @_value_error_for_bounds()
    def scatter(self, x: Any, places: Any, updates: Any, combine: str | None = None) -> Any:
        return super().scatter(x, places, updates, combine)

    def runs(self, keys: Any) -> Any:
        order = keys.argsort(kind="stable")
        return order, self.is_new(keys.take(order))

    def is_new(self, arranged: Any) -> Any:
        a, b = arranged[1:], arranged[:-1]
        is_new = np.empty(arranged.shape, np.bool_)
        is_new[:1] = True
        np.not_equal(a, b, out=is_new[1:])
        # NaN comes last.
        if arranged.dtype.kind not in "biuO" and arranged.size and arranged[-1] != arranged[-1]:
            is_new[1:] &= ~(np.isnan(a) & np.isnan(b))
        return is_new

    def ranks(self, order: Any, is_new: Any) -> Any:
        counted = is_new.cumsum(dtype=np.int64)
        ranks = np.empty_like(counted)
        ranks[order] = counted - 1
        return ranks

    def distinct(self, keys: Any) -> Any:
        order, is_new = self.runs(keys)
        (starts,) = is_new.nonzero()
        counts = np.empty_like(starts)
        np.subtract(starts[1:], starts[:-1], out=counts[:-1])
        counts[-1:] = keys.size - starts[-1:]
        return order.take(starts), self.ranks(order, is_new), counts

    def below_top(self, x: Any, top: Any) -> Any:
        return x - top  # Nothing joins it with a product.

    def nonzero_total(self, total: Any) -> Any:
        return total + (total == 0)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        found = selected(condition, a, b)
        return np.where(condition, a, b) if found is None else found

    def erf(self, x: Any) -> Any:
        if x.dtype.itemsize < 4:
            return error_function(x.astype(np.float32)).astype(x.dtype)
        return error_function(x) if x.dtype == np.float32 else super().erf(x)


HOST = NumpyBackend()


class TooLarge(Exception):  # noqa: N818  (a signal, not an error)
    """A static value is too large to compute while tracing."""


class FoldingBackend(NumpyBackend):
    """NumPy for the static values of one trace, which stay small, each and all together."""

    largest: ClassVar[int] = 2**24
    # Values of so few elements are folded always: they are shapes and indices.
    always: ClassVar[int] = 2**10

    def __init__(self) -> None:
        super().__init__()
        self._left = 2**26

    def allow(self, shape: tuple[int, ...], dtype: np.dtype[Any], copies: int = 1) -> None:
        if math.prod(shape) > max(min(self.largest, self._left), self.always):
            raise TooLarge
        super().allow(shape, dtype, copies)

    def allow_operands(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Refuse operands whose result could be too large, broadcast, multiplied or joined."""
        sizes = [math.prod(shape) for shape in shapes]
        if math.prod(sizes) <= self.always:
            return
        if len(sizes) > 1 and math.prod(sizes) > self.largest:
            try:
                sizes.append(math.prod(np.broadcast_shapes(*shapes)))
            except ValueError:
                raise TooLarge from None
            if max(sum(sizes[:-1]), sizes[-1]) > self.largest:
                raise TooLarge
        if max(sizes) > self._left:
            raise TooLarge

    def keep(self, array: np.ndarray[Any, Any]) -> None:
        """Count a value that is new."""
        if array.base is None:
            self._left -= array.size
