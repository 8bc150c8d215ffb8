"""Products with weights, which are packed once: convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import jax
import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Epilogue, Function
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.threads import threads

# The order of the axes in memory, from the outermost to the innermost.
Layout: TypeAlias = tuple[int, ...]

_DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
# Numbered as in kernels/epilogue.h, where relu is a leaky_relu.
_FUNCTIONS = {name: max(number, 1) for number, name in enumerate(get_args(Function))}
_ADDENDS = {None: 0, "before": 1, "after": 2}
_MATRIX, _CONVOLUTION = 0, 1


@dataclass(frozen=True)
class Product:
    """How to compute one product, for arrays of certain shapes and no others.

    >>> import numpy as np
    >>> from sardonyx.backends.jax.onednn import matrix_product
    >>> product = matrix_product((128, 32), (32, 64), np.float32)
    >>> if product is not None:
    ...     packed = product.pack(np.ones((32, 64), np.float32))
    ...     y = product.run(np.ones((128, 32), np.float32), packed)
    ...     assert y.shape == (128, 64)
    ...     assert y[0, 0] == 32
    """

    spec: tuple[int, ...]
    weight: Spec
    packed: Spec
    result: Spec
    layouts: tuple[Layout, ...]

    def pack(self, weight: Any) -> Any:
        """The weight in the form that the kernel reads: one axis of bytes.

        An array of the host is packed once, into NumPy's memory; within a program, at each call.
        """
        if (weight.shape, weight.dtype) != self.weight:
            raise ValueError(f"{weight.dtype}{weight.shape} is no {self.weight} to be packed")
        if isinstance(weight, jax.core.Tracer):
            call = jax.ffi.ffi_call(loaded.PACK, jax.ShapeDtypeStruct(*self.packed))
            return call(weight, spec=np.asarray(self.spec, np.int64))
        (size,) = self.packed.shape
        weight, spec = np.asarray(weight), self.spec
        if weight.ndim == 2 and not weight.flags.c_contiguous and weight.T.flags.c_contiguous:
            # oneDNN reads the transposed matrix in place; NumPy would take ten times as long.
            weight, spec = weight.T, (*spec[:-1], int(not spec[-1]))
        return loaded.pack(spec, size, weight)

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        """The product and its epilogue, whose bias and addend, if any, are the `others`.

        It has no derivatives, so it serves only programs that nobody transforms.
        """
        *inputs, output = self.layouts
        call = jax.ffi.ffi_call(
            loaded.RUN,
            jax.ShapeDtypeStruct(*self.result),
            input_layouts=inputs,
            output_layouts=output,
        )
        return call(x, packed, *others, spec=np.asarray(self.spec, np.int64))


def convolution(
    x: Sequence[int],
    weight: Sequence[int],
    dtype: Any,
    layout: ConvolutionLayout,
    *,
    epilogue: Epilogue = NOTHING,
) -> Product | None:
    """A convolution of arrays of these shapes, or None if oneDNN has no fast kernel for it.

    The channels are the second axis of the shapes, as everywhere, and the last one in memory, where
    XLA leaves them between convolutions.
    """
    kernel, rank = weight[2:], layout.rank
    sizes = layout.sizes(x[2:], kernel)
    if not 1 <= rank <= 3 or min(*x, *weight, *sizes) < 1:
        return None
    if not _windows_meet_input(kernel, layout):
        return None
    numbers = [_CONVOLUTION, rank, x[0], x[1], weight[0], layout.groups]
    strides, pads, dilations, _ = layout
    for size, side, stride, ends, dilation in zip(
        x[2:], kernel, strides, pads, dilations, strict=True
    ):
        numbers += size, side, stride, *ends, dilation
    channels_last = (0, *range(2, len(x)), 1)
    return _product(weight, (x[0], weight[0], *sizes), dtype, numbers, epilogue, channels_last)


def matrix_product(
    x: Sequence[int],
    weight: Sequence[int],
    dtype: Any,
    *,
    is_transposed: bool = False,
    epilogue: Epilogue = NOTHING,
) -> Product | None:
    """The product of an array's rows and a matrix, or None if oneDNN has no fast kernel for it."""
    if min(*x, *weight) < 1:
        return None
    inner, columns = reversed(weight) if is_transposed else weight
    numbers = [_MATRIX, math.prod(x[:-1]), inner, columns, is_transposed]
    return _product(weight, (*x[:-1], columns), dtype, numbers, epilogue, tuple(range(len(x))))


def _product(
    weight: Sequence[int],
    shape: tuple[int, ...],
    dtype: Any,
    numbers: Sequence[int],
    epilogue: Epilogue,
    layout: Layout,
) -> Product | None:
    number = _DTYPES.get(np.dtype(dtype).name)
    if number is None:
        return None
    head = [number, epilogue.has_bias, _ADDENDS[epilogue.addend], *_described(epilogue)]
    bias = [(0,)] if epilogue.has_bias else []
    addend = [layout] if epilogue.addend else []
    layouts = (layout, (0,), *bias, *addend, layout)
    # If the threads cannot divide a product into the pieces that they need, one computes all of it.
    for count in sorted({threads(), 1}, reverse=True):
        spec = tuple(map(int, (count, *head, *numbers)))
        size = loaded.packed_size(spec)
        if size is not None:
            return Product(
                spec,
                weight=Spec(tuple(weight), np.dtype(dtype)),
                packed=Spec((size,), np.dtype(np.uint8)),
                result=Spec(shape, np.dtype(dtype)),
                layouts=layouts,
            )
    return None


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
