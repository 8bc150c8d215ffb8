"""Arrays of the types that CuPy lacks: floats of 8 bits and fewer, integers of 4 and 2."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import cupy
import numpy as np

from sardonyx.backends.cupy.bit_conversions import converted, encoded, numbers
from sardonyx.backends.dlpack import exported
from sardonyx.backends.fusion.narrow_types import NARROW, byte_of
from sardonyx.backends.shape_arrays import element


def _operator(name: str) -> Callable[..., Any]:
    """Return an operator that computes with the numbers, with NumPy's type of result."""
    function = getattr(operator, name)

    def operate(*operands: Any) -> Any:
        dtype = function(*map(_element, operands)).dtype
        return cast(function(*map(widened, operands)), dtype)

    return operate


def _reflected(name: str) -> Callable[..., Any]:
    operate = _operator(name)
    return lambda array, other: operate(other, array)


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Bits:
    """An array of a narrow type of ml_dtypes on a CUDA device, with one element per byte.

    `bits` is a CuPy array of the bytes, of dtype uint8 and of the same shape. Models accept such
    arrays and return them. `get()` and `numpy.asarray` copy the array to the host.
    """

    bits: Any
    dtype: np.dtype[Any]

    # NumPy's arrays and scalars leave their operators to this class.
    __array_ufunc__: ClassVar[None] = None
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as arrays have none

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.dtype)
        if self.dtype not in NARROW:
            raise TypeError(f"CuPy has arrays of {self.dtype} itself: pass such an array")
        if not isinstance(self.bits, cupy.ndarray) or self.bits.dtype != np.uint8:
            raise TypeError("the bits of an array are a CuPy array of uint8")

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Bits:
        """Copy an array of the host to the current device."""
        return cls(cupy.asarray(array.reshape(-1).view(np.uint8)).reshape(array.shape), array.dtype)

    # -- what arrays have -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.bits.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def strides(self) -> tuple[int, ...]:
        strides: tuple[int, ...] = self.bits.strides
        return strides

    @property
    def flags(self) -> Any:
        return self.bits.flags

    @property
    def data(self) -> Any:
        """CuPy's pointer to the memory."""
        return self.bits.data

    @property
    def device(self) -> Any:
        return self.bits.device

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy on the host, of the same dtype."""
        host: np.ndarray[Any, Any] = cupy.asnumpy(self.bits)
        return host.view(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array of a CUDA device cannot be a NumPy array without a copy")
        return self.get() if dtype is None else self.get().astype(dtype)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """CuPy, whose arrays go with this one; its functions do not take it, but models do."""
        return cupy

    def __dlpack__(self, **options: Any) -> Any:
        """Share the memory of a type of 8 bits, in the order of streams that CuPy establishes."""
        return exported(self.dtype, self.bits, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.bits.__dlpack_device__()
        return device

    def copy(self) -> Bits:
        return Bits(self.bits.copy(order="C"), self.dtype)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return the numbers in another dtype: a CuPy array, unless CuPy lacks that one too."""
        found = cast(self, np.dtype(dtype))
        return found.copy() if found is self and copy else found

    def __repr__(self) -> str:
        return f"<Bits of {self.dtype} {self.shape} on CUDA device {self.data.device_id}>"

    def __len__(self) -> int:
        return len(self.bits)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Bits:
        return Bits(self.bits[key], self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.bits[key] = bytes_of(value, self.dtype)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    __eq__ = _operator("eq")
    __ne__ = _operator("ne")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    __neg__ = _operator("neg")
    __abs__ = _operator("abs")
    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("truediv"), _reflected("truediv")
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _operator("mod"), _reflected("mod")
    __pow__, __rpow__ = _operator("pow"), _reflected("pow")


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return a CuPy array or `Bits` with another dtype, rounded once; `x` itself if it has it."""
    if x.dtype == dtype:
        return x
    if dtype not in NARROW:
        return numbers(x.bits, x.dtype, dtype) if isinstance(x, Bits) else converted(x, dtype)
    return Bits(encoded(widened(x), dtype), dtype)


def widened(x: Any) -> Any:
    """Return the numbers of `Bits` as a CuPy array, and everything else as it is."""
    return numbers(x.bits, x.dtype) if isinstance(x, Bits) else x


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any], memory: Any = None) -> Any:
    """Return an array or `Bits` that hold anything, at a pointer of CuPy's if one is passed."""
    if dtype in NARROW:
        return Bits(cupy.ndarray(shape, np.uint8, memory), dtype)
    return cupy.ndarray(shape, dtype, memory)


def copied(array: Any) -> Any:
    """Return a copy in memory of the current stream; CuPy's own would start a kernel."""
    if not array.flags.c_contiguous:
        return array.copy()
    result = new_array(array.shape, array.dtype)
    result.data.copy_from_device_async(array.data, array.nbytes)
    return result


def fetched(array: Any) -> Any:
    """Return a copy on the host."""
    return array.get() if isinstance(array, Bits) else cupy.asnumpy(array)


def data_of(array: Any) -> Any:
    """Return the CuPy array that holds the elements: for `Bits` that of their bytes."""
    return array.bits if isinstance(array, Bits) else array


def bytes_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the bytes of an array, or of a number, as elements of a narrow dtype."""
    if isinstance(value, (Bits, cupy.ndarray)):
        return cast(value, dtype).bits
    host = np.asarray(value).astype(dtype)
    return byte_of(host) if host.ndim == 0 else Bits.of(host).bits


def _element(operand: Any) -> Any:
    """Return a NumPy array in place of an array, and numbers as they are."""
    return element(operand.dtype) if hasattr(operand, "dtype") else operand
