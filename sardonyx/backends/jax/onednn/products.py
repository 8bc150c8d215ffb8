"""Products with weights, which are packed once: convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import repeat
from typing import Any, ClassVar, TypeAlias, get_args

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Epilogue, Function
from sardonyx.backends.jax.arrays import is_array, is_tracer
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import dense
from sardonyx.backends.jax.onednn.loaded import PACK, RUN, Kind
from sardonyx.backends.jax.onednn.threads import threads_of_process
from sardonyx.backends.standard import Shape

# The order of the axes in memory, from the outermost to the innermost.
AxisOrder: TypeAlias = tuple[int, ...]

_DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
# Numbered as in kernels/epilogue.h, where relu is a leaky_relu.
_FUNCTIONS = {name: max(number, 1) for number, name in enumerate(get_args(Function))}
_ADDENDS = {None: 0, "before": 1, "after": 2}
_MATRIX, _CONVOLUTION = 0, 1
# Maximum number of products that are known; those that were not asked for longest are forgotten.
MOST_PRODUCTS = 4096


def called(target: str, spec: Sequence[int], result: Spec, *arrays: Any, **options: Any) -> Any:
    """The result of a kernel in a program of XLA, or for arrays of JAX."""
    if not is_array(arrays[0]):
        raise TypeError(f"a {type(arrays[0]).__name__} is no array of NumPy or JAX")
    # It imports JAX, which whoever has such an array has done.
    from sardonyx.backends.jax.onednn import in_programs  # noqa: PLC0415

    return in_programs.called(target, spec, result, *arrays, **options)


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the form that a kernel reads: one axis of bytes.

    Products of other sizes often read the same form, so that the weight is packed once for them.
    """

    weight: Spec
    packed: Spec
    # Which form it is, and the specification of one of these products.
    numbers: tuple[int, ...]
    spec: tuple[int, ...] = field(compare=False)

    # The fields that only oneDNN knows, from the others.
    looked_up: ClassVar[tuple[str, ...]] = ("packed", "numbers")

    @classmethod
    def look_up(cls, *, weight: Spec, spec: tuple[int, ...]) -> PackedWeight | None:
        """The form that the product with this specification reads; None without a fast kernel."""
        form = loaded.packed_form(spec)
        if form is None:
            return None
        packed = Spec((form.size,), np.dtype(np.uint8))
        return cls(weight, packed, spec if form.numbers is None else form.numbers, spec)

    def pack(self, weight: Any) -> Any:
        """The weight in this form.

        An array of the host is packed once, into NumPy's memory; within a program, at each call.
        """
        if (weight.shape, weight.dtype) != self.weight:
            raise ValueError(f"{weight.dtype}{weight.shape} is no {self.weight} to be packed")
        if is_tracer(weight):
            return called(PACK, self.spec, self.packed, weight)
        (size,) = self.packed.shape
        weight, spec = np.asarray(weight), self.spec
        if weight.ndim == 2 and not weight.flags.c_contiguous and weight.T.flags.c_contiguous:
            # oneDNN reads the transposed matrix in place; NumPy would take ten times as long.
            weight, spec = weight.T, (*spec[:-1], int(not spec[-1]))
        return loaded.pack(spec, size, weight)


@dataclass(frozen=True)
class Product:
    """How to compute one product, for arrays of certain shapes and no others.

    >>> import numpy as np
    >>> from sardonyx.backends.jax.onednn import matrix_product
    >>> x, weight = np.ones((128, 32), np.float32), np.ones((32, 64), np.float32)
    >>> product = matrix_product(Spec(x.shape, x.dtype), Spec(weight.shape, weight.dtype))
    >>> if product is not None:
    ...     y = product.run(x, product.form.pack(weight))
    ...     assert y.shape == (128, 64)
    ...     assert y[0, 0] == 32
    """

    spec: tuple[int, ...]
    form: PackedWeight
    result: Spec
    layouts: tuple[AxisOrder, ...]
    has_bias: bool

    is_same_in_programs: ClassVar[bool] = True
    kind: ClassVar[Kind] = Kind.PRODUCT

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        """The product and its epilogue, whose bias and addend, if any, are the `others`.

        It runs at once on arrays of the host. In programs it has no derivatives, so it serves only
        those that nobody transforms.
        """
        if isinstance(x, np.ndarray):
            return self._run_on_host(x, packed, *others)
        arrays = (x, packed, *others)
        return called(RUN, self.spec, self.result, *arrays, layouts=self.layouts)

    @property
    def threads(self) -> int:
        """How many of them share the work."""
        return self.spec[0]

    def _run_on_host(self, *arrays: Any) -> Any:
        *orders, order = self.layouts
        x, packed, *others = map(in_memory_order, arrays, orders, repeat(self.threads))
        bias = others.pop(0) if self.has_bias else None
        addend = others.pop(0) if others else None
        y = empty_in_order(self.result, order)
        loaded.compute(self.kind, self.spec, x, packed, bias, addend, y)
        return in_axis_order(y, order)


def in_memory_order(array: Any, order: AxisOrder, threads: int) -> Any:
    """A view whose axes are in this order, or a copy if they are not so in memory."""
    if not _is_by_rows(order):
        return dense(array.transpose(order), threads)
    is_dense = type(array) is np.ndarray and array.flags.c_contiguous
    return array if is_dense else dense(array, threads)


def empty_in_order(spec: Spec, order: AxisOrder) -> Any:
    """An array for a kernel to write, whose axes are in this order."""
    return np.empty([spec.shape[axis] for axis in order], spec.dtype)


def in_axis_order(array: Any, order: AxisOrder) -> Any:
    """An array whose axes are in this order in memory, as a view with the axes of its shape."""
    return array if _is_by_rows(order) else array.transpose(_inverse(order))


@cache
def _inverse(order: AxisOrder) -> AxisOrder:
    return tuple(map(order.index, range(len(order))))


@cache
def _is_by_rows(order: AxisOrder) -> bool:
    return order == tuple(range(len(order)))


def convolution(
    x: Spec,
    weight: Spec,
    layout: ConvolutionLayout,
    *,
    epilogue: Epilogue = NOTHING,
    threads: int | None = None,
) -> Product | None:
    """A convolution of arrays like these, or None if oneDNN has no fast kernel for it.

    The channels are the second axis of the shapes, as everywhere, and the last one in memory, where
    XLA leaves them between convolutions. None stands for all threads of the process.
    """
    if loaded.shared_library() is None:
        return None
    (batch, channels, *spatial), (count, _, *kernel) = x.shape, weight.shape
    sizes = layout.sizes(spatial, kernel)
    if not 1 <= layout.rank <= 3 or min(*x.shape, *weight.shape, *sizes) < 1:
        return None
    if not _windows_meet_input(kernel, layout):
        return None
    numbers = [_CONVOLUTION, layout.rank, batch, channels, count, layout.groups]
    strides, pads, dilations, _ = layout
    axes = zip(spatial, kernel, strides, pads, dilations, strict=True)
    for size, side, stride, ends, dilation in axes:
        numbers += size, side, stride, *ends, dilation
    channels_last = (0, *range(2, len(x.shape)), 1)
    return _product(weight, (batch, count, *sizes), numbers, epilogue, channels_last, threads)


def matrix_product(
    x: Spec,
    weight: Spec,
    *,
    is_transposed: bool = False,
    epilogue: Epilogue = NOTHING,
    threads: int | None = None,
) -> Product | None:
    """The product of an array's rows and a matrix, or None if oneDNN has no fast kernel for it."""
    if loaded.shared_library() is None or min(*x.shape, *weight.shape) < 1:
        return None
    rows = x.shape[:-1]
    inner, columns = reversed(weight.shape) if is_transposed else weight.shape
    numbers = [_MATRIX, math.prod(rows), inner, columns, is_transposed]
    order = tuple(range(len(x.shape)))
    return _product(weight, (*rows, columns), numbers, epilogue, order, threads)


def _product(
    weight: Spec,
    shape: Shape,
    numbers: Sequence[int],
    epilogue: Epilogue,
    layout: AxisOrder,
    threads: int | None,
) -> Product | None:
    number = _DTYPES.get(weight.dtype.name)
    if number is None:
        return None
    head = [number, epilogue.has_bias, _ADDENDS[epilogue.addend], *_described(epilogue)]
    bias = [(0,)] if epilogue.has_bias else []
    addend = [layout] if epilogue.addend else []
    layouts = (layout, (0,), *bias, *addend, layout)
    # If the threads cannot divide a product into the pieces that they need, one computes all of it.
    for count in sorted({threads or threads_of_process(), 1}, reverse=True):
        spec = tuple(map(int, (count, *head, *numbers)))
        product = _known(spec, weight, Spec(shape, weight.dtype), layouts, epilogue.has_bias)
        if product is not None:
            return product
    return None


@lru_cache(MOST_PRODUCTS)
def _known(
    spec: tuple[int, ...],
    weight: Spec,
    result: Spec,
    layouts: tuple[AxisOrder, ...],
    has_bias: bool,
) -> Product | None:
    """The product with this specification: networks repeat their layers."""
    read = PackedWeight.look_up(weight=weight, spec=spec)
    return None if read is None else Product(spec, read, result, layouts, has_bias)


def _described(epilogue: Epilogue) -> list[int]:
    after = epilogue.activation
    if after is None:
        return [0, 0, 0]
    alpha = 0.0 if after.function == "relu" else after.alpha
    return [_FUNCTIONS[after.function], _bits(alpha), _bits(after.beta)]


def _bits(value: float) -> int:
    """A float32 among integers."""
    return int(np.float32(value).view(np.int32))


def _windows_meet_input(kernel: Sequence[int], layout: ConvolutionLayout) -> bool:
    """Whether no window lies in the padding alone."""
    return all(
        0 <= pad <= (side - 1) * dilation
        for side, ends, dilation in zip(kernel, layout.pads, layout.dilations, strict=True)
        for pad in ends
    )
