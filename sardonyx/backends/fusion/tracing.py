"""The array library whose arrays are symbols: each primitive becomes a node."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fusion import index_rules
from sardonyx.backends.fusion.expressions import FUNCTIONS, computed_dtype
from sardonyx.backends.fusion.nodes import (
    DTYPES,
    Constant,
    Elementwise,
    Indexed,
    Iota,
    Joined,
    Node,
    Opaque,
    Part,
    Reduction,
)
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.on_device import OnDevice
from sardonyx.backends.shape_arrays import NoShapeRule, ShapeArray
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Shape

INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
# A reduction over more elements that are not neighbours is left to the library.
LONGEST_LOOP = 512
# So is one of few rows, each of which has more elements.
FEW_ROWS, LONGEST_ROW = 16, 2**15
# And a concatenation of more arrays.
MOST_JOINED = 16


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


def _refuse(*_: Any, **__: Any) -> Any:
    raise NoShapeRule


class TracingBackend(OnDevice):
    """Ops on symbols. What cannot be traced raises, and its step becomes one opaque node."""

    name: ClassVar[str] = "fusion"
    attends = True

    def __init__(self) -> None:
        super().__init__(Namespace())

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        return SHAPES.isdtype(dtype, kind)

    def owns(self, value: object) -> bool:
        return isinstance(value, Symbol)

    def is_abstract(self, value: object) -> bool:
        return isinstance(value, Symbol)

    def deferred(
        self, call: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[Spec]
    ) -> Sequence[Any]:
        """Return symbols of the results of a step that was not traced to its end."""
        is_unsized = bool(getattr(call, "is_unsized", False))
        operands = tuple(self.node(array) for array in arrays)
        node = Opaque(shape=(), dtype=BOOL, operands=operands, call=call, results=len(specs))
        return [self._part(node, i, *spec, is_unsized=is_unsized) for i, spec in enumerate(specs)]

    # What reads or writes elements, or lets them decide.
    fetch = adopt = nonzero = cond = loop = scan = gradients = _refuse
    strides = elements_at = with_strides = write = _refuse

    # -- nodes ------------------------------------------------------------------------------------

    def symbol(self, node: Node) -> Symbol:
        return Symbol(node, self)

    def node(self, value: Any) -> Node:
        """Return the node of a symbol, or of a value that is known now."""
        if isinstance(value, Symbol):
            return value.node
        value = np.asarray(value)
        return Constant(shape=value.shape, dtype=value.dtype, value=value)

    def _like(self, result: Any, kind: type[Node], *operands: Node, **fields: Any) -> Symbol:
        """Return a symbol with the shape and dtype of an inferred result."""
        if not result.size:
            return self.symbol(self.node(np.empty(result.shape, result.dtype)))
        node = kind(shape=result.shape, dtype=result.dtype, operands=operands, **fields)
        return self.symbol(node)

    def _part(
        self, node: Node, index: int, shape: Shape, dtype: Any, is_unsized: bool = False
    ) -> Symbol:
        part = Part(
            shape=shape, dtype=np.dtype(dtype), operands=(node,), index=index, is_unsized=is_unsized
        )
        return self.symbol(part)

    def opaque(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Record a call of the library's own function of this name."""
        result = getattr(SHAPES, name)(*_blank(arguments), **_blank(options))
        several = isinstance(result, (tuple, list))
        results = result if several else (result,)
        if not all(isinstance(one, ShapeArray) for one in results):
            raise NoShapeRule
        symbols = list(_symbols(arguments)) + list(_symbols(options))

        def call(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
            rest = iter(arrays)
            filled, named = _filled(arguments, rest), _filled(options, rest)
            found = getattr(xp, name)(*filled, **named)
            return tuple(found) if several else (found,)

        node = Opaque(
            shape=(),
            dtype=BOOL,
            operands=tuple([symbol.node for symbol in symbols]),
            call=call,
            results=len(results),
        )
        parts = [self._part(node, i, one.shape, one.dtype) for i, one in enumerate(results)]
        return parts if several else parts[0]

    # -- creation ---------------------------------------------------------------------------------

    def put(self, value: Any) -> Any:
        return self.symbol(self.node(np.asarray(value)))

    def asarray(self, value: Any, *, dtype: Any = None, copy: bool | None = None) -> Any:
        if not isinstance(value, Symbol):
            return self.put(np.asarray(value, dtype))
        value = value if dtype is None else self.astype(value, dtype)
        return self._copied(value) if copy else value

    def _copied(self, x: Any) -> Any:
        """Return `x` in an array of its own, if it gets one: a result may be written to."""
        if x.dtype not in DTYPES:
            return self.opaque("asarray", x, copy=True)
        return self._computed("astype", x.blank, [x], x.dtype)

    def full(self, shape: Any, value: Any, *, dtype: Any = None) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        filling = self.asarray(value, dtype=dtype)
        if filling.dtype not in DTYPES:
            return self.opaque("full", shape, value, dtype=filling.dtype)
        return self.broadcast_to(filling, shape)

    def zeros(self, shape: Any, *, dtype: Any = None) -> Any:
        return self.full(shape, 0, dtype=dtype or np.float64)

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

    # -- element by element -----------------------------------------------------------------------

    def elementwise(self, name: str, *operands: Any, **options: Any) -> Any:
        """Record a function of each element, or the library's call if kernels lack it."""
        computed_in = None
        if not options and any(isinstance(operand, Symbol) for operand in operands):
            blanks = _blank(operands)
            result = getattr(SHAPES, name)(*blanks)
            computed_in = computed_dtype(name, result.dtype, blanks)
        if computed_in is None:
            return self.opaque(name, *operands, **options)
        return self._computed(name, result, operands, computed_in)

    def _computed(
        self, name: str, result: Any, operands: Sequence[Any], computed_in: np.dtype[Any]
    ) -> Symbol:
        nodes = [
            operand.node if isinstance(operand, Symbol) else self._literal(operand, computed_in)
            for operand in operands
        ]
        return self._like(result, Elementwise, *nodes, function=name, computed_in=computed_in)

    def _literal(self, value: Any, dtype: np.dtype[Any]) -> Node:
        is_strong = isinstance(value, (np.ndarray, np.generic))
        return self.node(value if is_strong else np.asarray(value, dtype))

    def astype(self, x: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        result = SHAPES.astype(x.blank, dtype)
        is_wide = x.dtype.kind in "iu" and x.dtype.itemsize == 8
        if not {x.dtype, dtype} <= DTYPES or (is_wide and dtype.name == "bfloat16"):
            return self.opaque("astype", x, dtype)
        return self._computed("astype", result, [x], dtype)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        result = SHAPES.bitcast(x.blank, dtype)
        if not {x.dtype, dtype} <= DTYPES or BOOL in (x.dtype, dtype):
            return self.opaque("bitcast", x, dtype)
        return self._computed("bitcast", result, [x], x.dtype)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        values = _blank((condition, x, y))
        if not isinstance(condition, Symbol) or condition.dtype != BOOL:
            return self.opaque("where", condition, x, y)
        result = SHAPES.where(*values)
        if result.dtype not in DTYPES:
            return self.opaque("where", condition, x, y)
        return self._computed("where", result, (condition, x, y), result.dtype)

    def erf(self, x: Any) -> Any:
        return self.elementwise("erf", x)

    def fmod(self, a: Any, b: Any) -> Any:
        return self.elementwise("fmod", a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        return self.elementwise("divide", a, b)

    def separate_product(self, a: Any, b: Any) -> Any:
        return self.elementwise("multiply", a, b)

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
        rows = result.size
        too_long = length > LONGEST_ROW and rows < FEW_ROWS if is_by_row else length > LONGEST_LOOP
        if not x.size or too_long or not {x.dtype, result.dtype} <= DTYPES:
            return self.opaque(name, x, axis=axis, keepdims=keepdims, **options)
        computed_in = BOOL if name in ("any", "all") else result.dtype
        x = self.astype(self.permute_dims(x, (*others, *axes)), computed_in)
        if length > 1:
            short = SHAPES.reshape(result, tuple([x.shape[i] for i in range(len(others))]))
            fields = {"function": name, "computed_in": computed_in, "length": length}
            x = self._like(short, Reduction, x.node, is_by_row=is_by_row, **fields)
        return self.reshape(x, result.shape)

    # -- form -------------------------------------------------------------------------------------

    def _indexed(self, result: Any, rule: index_rules.Rule, x: Any, *indices: Any) -> Symbol:
        return self._like(result, Indexed, x.node, *(i.node for i in indices), rule=rule)

    def reshape(self, x: Any, shape: Any) -> Any:
        result = SHAPES.reshape(x.blank, shape)
        return x if result.shape == x.shape else self._form(result, index_rules.Reshape(), x)

    def _form(self, result: Any, rule: index_rules.Rule, x: Any) -> Any:
        """Record a view, of arrays of any dtype."""
        return self._like(result, Indexed, x.node, rule=rule)

    def expand_dims(self, x: Any, *, axis: Any = 0) -> Any:
        return self.reshape(x, SHAPES.expand_dims(x.blank, axis=axis).shape)

    def squeeze(self, x: Any, axis: Any) -> Any:
        return self.reshape(x, SHAPES.squeeze(x.blank, axis).shape)

    def permute_dims(self, x: Any, axes: Any) -> Any:
        axes = tuple([int(axis) % x.ndim for axis in axes])
        if axes == tuple(range(x.ndim)):
            return x
        result = SHAPES.permute_dims(x.blank, axes)
        moved = [axis for axis in axes if x.shape[axis] != 1]
        rule = index_rules.Reshape() if moved == sorted(moved) else index_rules.Permute(axes)
        return self._form(result, rule, x)

    def matrix_transpose(self, x: Any) -> Any:
        if x.ndim < 2:
            raise ValueError("the matrix transpose of an array of fewer than two axes")
        return self.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))

    def moveaxis(self, x: Any, source: Any, destination: Any) -> Any:
        sources, places = (
            [axis % x.ndim for axis in ((side,) if isinstance(side, int) else side)]
            for side in (source, destination)
        )
        order = [axis for axis in range(x.ndim) if axis not in sources]
        for place, axis in sorted(zip(places, sources, strict=True)):
            order.insert(place, axis)
        return self.permute_dims(x, order)

    def broadcast_to(self, x: Any, shape: Any) -> Any:
        result = SHAPES.broadcast_to(x.blank, tuple(shape))
        return x if result.shape == x.shape else self._form(result, index_rules.Broadcast(), x)

    def broadcast_arrays(self, *arrays: Any) -> Sequence[Any]:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [self.broadcast_to(array, shape) for array in arrays]

    def item(self, x: Any, key: Any) -> Any:
        """Return `x[key]`."""
        parts = key if isinstance(key, tuple) else (key,)
        result = x.blank[key]
        if any(part is Ellipsis for part in parts):
            place = next(i for i, part in enumerate(parts) if part is Ellipsis)
            rest = x.ndim - sum(part is not None and part is not Ellipsis for part in parts)
            parts = (*parts[:place], *(slice(None),) * rest, *parts[place + 1 :])
        rest = x.ndim - sum(part is not None for part in parts)
        parts = (*parts, *(slice(None),) * rest)
        is_whole = result.shape == x.shape and not any(
            isinstance(part, slice) and part.step not in (None, 1) for part in parts
        )
        return x if is_whole else self._form(result, index_rules.Sliced(parts), x)

    def flip(self, x: Any, *, axis: Any = None) -> Any:
        given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {one % x.ndim for one in given}
        backwards, whole = slice(None, None, -1), slice(None)
        return self.item(x, tuple([backwards if i in axes else whole for i in range(x.ndim)]))

    def unstack(self, x: Any, *, axis: int = 0) -> Sequence[Any]:
        before = (slice(None),) * (axis % x.ndim)
        return [self.item(x, (*before, i)) for i in range(x.shape[axis])]

    def concat(self, arrays: Any, *, axis: int | None = 0) -> Any:
        if axis is None:
            raise NoShapeRule
        arrays = [self.asarray(array) for array in arrays]
        result = SHAPES.concat([array.blank for array in arrays], axis=axis)
        if result.dtype not in DTYPES or not result.size or len(arrays) > MOST_JOINED:
            return self.opaque("concat", arrays, axis=axis)
        cast = [self.astype(array, result.dtype) for array in arrays if array.size]
        if len(cast) == 1:
            return self._copied(cast[0])
        nodes = [array.node for array in cast]
        return self._like(result, Joined, *nodes, axis=axis % len(result.shape))

    def stack(self, arrays: Any, *, axis: int = 0) -> Any:
        return self.concat([self.expand_dims(array, axis=axis) for array in arrays], axis=axis)

    def roll(self, x: Any, shift: Any, *, axis: Any = None) -> Any:
        if not isinstance(shift, int) or not isinstance(axis, int) or not x.size:
            return self.opaque("roll", x, shift, axis=axis)
        place = axis % x.ndim
        cut = -shift % x.shape[place]
        before = (slice(None),) * place
        parts = [self.item(x, (*before, part)) for part in (slice(cut, None), slice(0, cut))]
        return self.concat(parts, axis=place)

    def tile(self, x: Any, repetitions: Any) -> Any:
        result = SHAPES.tile(x.blank, repetitions)
        rank = len(result.shape)
        sizes = (1,) * (rank - x.ndim) + x.shape
        pairs = [
            (new // old if old else 0, old) for new, old in zip(result.shape, sizes, strict=True)
        ]
        if not result.size:
            return self.put(np.empty(result.shape, result.dtype))
        x = self.reshape(x, tuple([size for _, old in pairs for size in (1, old)]))
        x = self.broadcast_to(x, tuple([size for pair in pairs for size in pair]))
        return self._copied(self.reshape(x, result.shape))

    def repeat(self, x: Any, repeats: Any, *, axis: int | None = None) -> Any:
        if axis is None or not isinstance(repeats, int) or not x.size or not repeats:
            return self.opaque("repeat", x, repeats, axis=axis)
        result = SHAPES.repeat(x.blank, repeats, axis=axis)
        end = axis % x.ndim + 1
        x = self.reshape(x, (*x.shape[:end], 1, *x.shape[end:]))
        x = self.broadcast_to(x, (*x.shape[:end], repeats, *x.shape[end + 1 :]))
        return self._copied(self.reshape(x, result.shape))

    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        if x.dtype not in DTYPES or isinstance(value, str) or _any_negative(widths):
            return self.opaque("pad", x, widths, value)
        padded = super().pad(x, widths, value)
        return self._copied(x) if padded is x else padded

    # -- computed indices -------------------------------------------------------------------------

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        indices = self.asarray(indices)
        result = SHAPES.take(x.blank, indices.blank, axis=axis)
        if not _is_integer(indices) or x.dtype not in DTYPES:
            return self.opaque("take", x, indices, axis=axis)
        return self._indexed(result, index_rules.Take(axis % x.ndim, indices.ndim), x, indices)

    def take_in_range(self, x: Any, indices: Any) -> Any:
        return self.take(x, indices, axis=0)

    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        indices = self.asarray(indices)
        result = SHAPES.take_along_axis(x.blank, indices.blank, axis=axis)
        if not _is_integer(indices) or x.dtype not in DTYPES or not x.size:
            return self.opaque("take_along_axis", x, indices, axis=axis)
        place = axis % x.ndim
        indices = self.broadcast_to(indices, result.shape)
        shape = (*result.shape[:place], x.shape[place], *result.shape[place + 1 :])
        return self._indexed(
            result, index_rules.TakeAlong(place), self.broadcast_to(x, shape), indices
        )

    def gather(self, x: Any, places: Any) -> Any:
        places = [self.asarray(place) for place in places]
        result = SHAPES.gather(x.blank, [place.blank for place in places])
        if not all(map(_is_integer, places)) or x.dtype not in DTYPES or not x.size:
            return self.opaque("gather", x, places)
        rank = len(result.shape) - x.ndim + len(places)
        shape = result.shape[:rank]
        places = [self.broadcast_to(place, shape) for place in places]
        return self._indexed(result, index_rules.Gather(len(places), rank), x, *places)


TRACING = TracingBackend()


def _blank(value: Any) -> Any:
    """Replace symbols, also those in sequences, by arrays that have a shape and a dtype alone."""
    if isinstance(value, Symbol):
        return value.blank
    if isinstance(value, (tuple, list)):
        return type(value)(map(_blank, value))
    return {k: _blank(v) for k, v in value.items()} if isinstance(value, dict) else value


def _symbols(value: Any) -> Iterator[Symbol]:
    if isinstance(value, Symbol):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _symbols(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _symbols(one)


def _filled(value: Any, arrays: Iterator[Any]) -> Any:
    """Replace symbols by arrays, in their order."""
    if isinstance(value, Symbol):
        return next(arrays)
    if isinstance(value, (tuple, list)):
        return type(value)([_filled(one, arrays) for one in value])
    return {k: _filled(v, arrays) for k, v in value.items()} if isinstance(value, dict) else value


def _is_integer(x: Any) -> bool:
    return x.dtype.kind in "iu" and x.dtype.name != "uint64"


def _any_negative(widths: Any) -> bool:
    return any(width < 0 for pair in widths for width in pair)
