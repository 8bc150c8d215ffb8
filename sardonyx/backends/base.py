"""The whole vocabulary of an op: the array API standard, and the primitives ONNX needs besides.

A backend is one array library. Its class binds the standard's functions to the library and
replaces a primitive wherever the library has something better than the fallback written here in
the standard's own terms. A backend knows nothing of ONNX.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from sardonyx.backends import fallback
from sardonyx.backends.conditions import Conditions
from sardonyx.backends.folder import Folder
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.jax.padding.protocols import Padding
from sardonyx.backends.size_limits import guarded, refuse_huge_here
from sardonyx.backends.standard import Array, Operand, Standard
from sardonyx.backends.strides import dense_strides, same_layout
from sardonyx.errors import BackendUnavailable, InvalidInput

Replay = Callable[..., Sequence[Any]]


class HoldsNoStrings(Exception):  # noqa: N818  (a signal, not an error)
    """An op makes strings, and the backend's arrays cannot hold any."""


class Spec(NamedTuple):
    """Shape and dtype of a value whose data is not known, or not needed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a compiler says of what it made, in bytes, and in operations on numbers."""

    arguments: int
    outputs: int
    # The largest amount that lives at once of what is neither argument nor output.
    temporaries: int
    # What outputs took over from arguments that the caller gave up.
    donated: int
    code: int
    operations: float
    # What is read and written in memory.
    moved: float


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Executable:
    """A function of arrays, ready to run."""

    run: Replay
    costs: Callable[[], Costs] | None = None


class PackedProduct(Protocol):
    """A kernel that multiplies arrays of certain shapes by a weight in a form of its own."""

    @property
    def packed(self) -> Spec:
        """What `pack` makes."""

    def pack(self, weight: Any) -> Any:
        """The weight in that form; it runs ahead of the calls, on an array of the host."""

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        """The product, and its epilogue with the bias and the addend, as far as it has them."""


class Backend(Conditions):
    """One array library, as ops and programs see it.

    Ops get it as `xp`. They call the standard's functions and the primitives below; the second half
    (`infer`, `compile`, `put`, ...) is for the graph, which records and runs programs.
    """

    name: ClassVar[str]
    # Whether segments are compiled as a whole; otherwise steps run one by one, while recording too.
    compiled: bool = False
    # Whether programs take NumPy arrays as they are, so that none need be uploaded by hand.
    takes_numpy: bool = False
    # Whether its arrays can hold strings, so that they need not be computed on the host instead.
    holds_strings: ClassVar[bool] = False
    skips_padding: ClassVar[bool] = False  # By `convolution(..., is_finite=True)`.
    # Whether a reshape shares its source's buffer even where it leaves the program.
    reshapes_are_views: ClassVar[bool] = True
    # Constants up to this many bytes are written into the program instead of being passed to it.
    embeds_up_to: ClassVar[int] = 0
    # Vectors of up to this many bytes are passed together: each argument costs time at a call.
    packs_up_to: ClassVar[int] = 0
    # Whether it may have kernels of its own for products and what follows them.
    fuses: bool = False
    # Whether its `attention` is faster than the operators of which it consists.
    attends: bool = False
    # The most bytes of a value that is made of little; None is what the memory here allows.
    largest_value: int | None = None

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        for function in Standard.__annotations__:
            if not hasattr(type(self), function):
                made = guarded(self, function, getattr(namespace, function))
                setattr(self, function, made)

    def __repr__(self) -> str:
        return f"<backend {self.name}>"

    def __reduce__(self) -> Any:
        """A backend is pickled as what finds it again; a class of your own says how."""
        raise TypeError(
            f"The backend {self.name!r} cannot be pickled: give {type(self).__name__} a __reduce__."
        )

    def __copy__(self) -> Backend:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    # -- primitives for ops -----------------------------------------------------------------------

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """The library's own name for a NumPy dtype."""
        return dtype

    def numpy_dtype(self, dtype: Any) -> np.dtype[Any]:
        """NumPy's name for one of the library's dtypes."""
        named: np.dtype[Any] = np.dtype(dtype)
        return named

    def allow(self, shape: tuple[int, ...], dtype: np.dtype[Any], copies: int = 1) -> None:
        """Refuse a value of this shape and NumPy dtype where it is too large to be made.

        `copies` says how many arrays of that size there are on the way to it.
        """
        refuse_huge_here(shape, dtype, self.largest_value, copies)

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], value: Operand | str) -> Array:
        """`x` with `widths[i]` elements of `value` before and after it on axis i."""
        return fallback.pad(self, x, widths, value)

    def bitcast(self, x: Array, dtype: Any) -> Array:
        """The bits of `x` as another type of the same size."""
        return fallback.bitcast(self, x, dtype)

    def gather(self, x: Array, places: Sequence[Array]) -> Array:
        """`x[places[0], places[1], ...]`, where the places are integers and may be negative."""
        return fallback.gather(self, x, places)

    def scatter(
        self, x: Array, places: Sequence[Array], updates: Array, combine: str | None = None
    ) -> Array:
        """A copy of `x` in which `updates` stand at `x[places[0], places[1], ...]`.

        Or are combined with what is there, by "add", "mul", "max" or "min". Places may be negative.
        """
        return fallback.scatter(self, x, places, updates, combine)

    def top_k(self, x: Array, k: int, *, axis: int, largest: bool) -> Array:
        """Where the `k` largest (or least) along an axis are: in order, and equal ones in theirs.

        NaN is greater than all numbers.
        """
        return fallback.top_k(self, x, k, axis=axis, largest=largest)

    def fft(self, x: Array, *, axis: int, inverse: bool = False) -> Array:
        """The discrete Fourier transform of complex numbers along an axis."""
        transforms = self._namespace.fft
        result: Array = (transforms.ifft if inverse else transforms.fft)(x, axis=axis)
        return result

    def solve_lower(self, a: Array, b: Array) -> Array:
        """`x` such that `a @ x` is `b`; the matrix `a` has 1 on its diagonal and 0 above it."""
        return fallback.solve_lower(self, a, b)

    def det(self, x: Array) -> Array:
        """The determinants of square matrices."""
        determinants: Array = self._namespace.linalg.det(x)
        return determinants

    def detached(self, x: Array) -> Array:
        """`x` as a constant: whoever derives the result leaves it out."""
        return x

    def erf(self, x: Array) -> Array:
        """The error function, to the precision of `x`."""
        return fallback.erf(self, x)

    def fmod(self, a: Array, b: Array) -> Array:
        """What a division towards zero leaves: exact, and with the sign of `a`."""
        return fallback.fmod(self, a, b)

    def quotient(self, a: Array, b: Operand) -> Array:
        """`a / b`, rounded once to the dtype of `a`: a compiler may make less of `divide`."""
        return self.divide(a, b)

    def integer_matmul(self, a: Array, b: Array) -> Array:
        """The product of matrices of 8-bit integers, signed or not, in int32 modulo 2**32."""
        return fallback.integer_matmul(self, a, b)

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        bias: Array | None = None,
        *,
        scale: float,
        is_guarded: bool = False,
    ) -> Array:
        """`softmax(scale * q @ k^T + bias) @ v` over the last two axes.

        Several heads of `q`, on the axis before these, may share one of `k` and `v`. If the call
        is guarded, weights that are no numbers, as where the bias forbids every key, are zeros.
        """
        return fallback.attention(self, q, k, v, bias, scale=scale, is_guarded=is_guarded)

    def convolution(
        self,
        x: Array,
        weight: Array,
        *,
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilations: Sequence[int],
        groups: int,
    ) -> Array:
        """Correlate (N, C, *spatial) with (M, C / groups, *kernel)."""
        return fallback.convolution(
            self, x, weight, strides=strides, pads=pads, dilations=dilations, groups=groups
        )

    def packed_convolution(
        self,
        x: Spec,
        weight: Spec,
        *,
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilations: Sequence[int],
        groups: int,
        epilogue: Epilogue,
    ) -> PackedProduct | None:
        """A kernel for a convolution of arrays like these, and what follows it, if there is one."""
        return None

    def packed_matmul(
        self, x: Spec, weight: Spec, *, is_transposed: bool, epilogue: Epilogue
    ) -> PackedProduct | None:
        """A kernel for rows times a matrix, and what follows, if there is one."""
        return None

    def window_max(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """Maximum over each window of the last `len(kernel)` axes; the caller has padded."""
        return fallback.window_reduce(self.maximum, x, kernel, strides, dilations)

    def window_sum(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """Sum over each window of the last `len(kernel)` axes; the caller has padded."""
        return fallback.window_reduce(self.add, x, kernel, strides, dilations)

    def strides(self, x: Array) -> tuple[int, ...]:
        """How many elements apart the neighbours of `x` lie in memory, on each axis."""
        return dense_strides(x.shape)

    def elements_at(self, x: Array, steps: Sequence[int]) -> Array:
        """An array of `x`'s shape whose [i, j, ...] is element i * steps[0] + j * steps[1] + ...

        of `x`, counted in row-major order. It may share memory with `x`, and with itself.
        """
        return fallback.elements_at(self, x, steps)

    def with_strides(self, x: Array, steps: Sequence[int]) -> Array:
        """A copy of `x` with `steps` as its strides; they have been checked not to overlap."""
        if not same_layout(x.shape, steps, dense_strides(x.shape)):
            raise ValueError(f"arrays of {self.name} have no strides but {dense_strides(x.shape)}")
        return self.asarray(x, copy=True)

    def write(self, out: Array, function: Callable[..., Array], *arguments: Any) -> Array:
        """`function(self, *arguments)` in the buffer of `out`, which may be among the arguments.

        Where arrays cannot change, `out` is given up for it. Use the result, not `out`.
        """
        value = function(self, *arguments)
        if value is not out:
            out[...] = value  # type: ignore[index]
        return out

    def cond(
        self, predicate: Array, when_true: Callable[[], Any], when_false: Callable[[], Any]
    ) -> Any:
        """The result of one of two functions of no arguments, chosen by a scalar."""
        return when_true() if bool(predicate) else when_false()

    def loop(
        self,
        condition: Callable[..., Array],
        body: Callable[..., tuple[Array, ...]],
        carry: tuple[Array, ...],
    ) -> tuple[Array, ...]:
        """`carry = body(*carry)` for as long as `condition(*carry)`, a boolean scalar, holds."""
        while bool(condition(*carry)):
            carry = body(*carry)
        return carry

    def scan(
        self,
        step: Callable[[Any, Any], tuple[Any, Any]],
        carry: tuple[Array, ...],
        inputs: tuple[Array, ...],
        length: int,
        *,
        reverse: bool = False,
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """`carry, outputs = step(carry, slices)` for each slice of the inputs along axis 0.

        The last carry, and the outputs stacked along axis 0, in the inputs' order.
        """
        return fallback.scan(self, step, carry, inputs, length, reverse=reverse)

    def gradients(self, function: Any, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
        """The derivatives by the first `count` arrays of the sum of what `function` makes of all.

        `function.on(xp)` is the function in the terms of another backend.
        """
        return fallback.gradients(self, function, arrays, count)

    # -- for the graph ----------------------------------------------------------------------------

    def scope(self) -> AbstractContextManager[object]:
        """Entered around every trace, compile and call; global state is changed only inside it."""
        return nullcontext()

    @classmethod
    def has_accelerator(cls) -> bool:
        """Whether the library has a GPU or a TPU here."""
        return False

    @classmethod
    def limit_memory(cls, fraction: float) -> None:
        """Take no more than this part of a GPU's memory, in this process."""

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> Any:
        """What the constructor takes for a "cpu", "gpu" or "tpu", or for None the library's own."""
        if kind not in (None, "cpu") or index:
            raise BackendUnavailable(f"The backend {cls.name!r} has the CPU alone: pass 'cpu'.")
        return None

    @classmethod
    def device_of(cls, value: Any) -> Any:
        """What the constructor takes for the device of an array."""
        return None

    def owns(self, value: object) -> bool:
        """Whether `value` is an array of this library."""
        raise NotImplementedError

    def narrowed(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What arrays meant to be of `dtype` are, where the library may lack it."""
        return dtype

    def spec(self, value: Any) -> Spec:
        """Shape and dtype of an array of this library, or of NumPy."""
        dtype = value.dtype if isinstance(value, np.ndarray) else self.numpy_dtype(value.dtype)
        return Spec(tuple(value.shape), dtype)

    def nbytes(self, value: Any) -> int:
        """How many bytes the data of an array takes."""
        shape, dtype = self.spec(value)
        return math.prod(shape) * dtype.itemsize

    def is_abstract(self, value: object) -> bool:
        """Whether `value` stands for data that is not there yet (a tracer)."""
        return False

    def put(self, value: np.ndarray[Any, Any]) -> Array:
        """`value` on the backend's device. The result may share memory nobody writes to."""
        raise NotImplementedError

    def key(self, value: Any) -> Any:
        """Two uint32 from which to draw at random, of a number or of what is such a pair."""
        if isinstance(value, (int, np.integer)):
            value = np.asarray(divmod(int(value) % 2**64, 2**32), np.uint32)
        if tuple(np.shape(value)) != (2,) or value.dtype != np.uint32:
            raise InvalidInput(
                "A key is a number or two uint32, and for JAX also one of its own keys; this is a "
                f"{type(value).__name__}."
            )
        is_placed = self.owns(value) or (self.takes_numpy and isinstance(value, np.ndarray))
        return value if is_placed else self.put(np.asarray(value))

    def adopt(self, value: Any) -> Array:
        """An array of another library (anything with `__dlpack__`) as one of this library."""
        raise NotImplementedError

    def shield(self, value: Array) -> Array:
        """`value` in a form whose writing by its receiver cannot change the original."""
        return value

    def uncompiled(self) -> Backend:
        """The same library and device, with each step run by itself as soon as it is recorded."""
        return self

    @property
    def folder(self) -> Folder | None:
        """Where it keeps what it compiles for other processes, if it does."""
        return None

    @property
    def manner(self) -> str:
        """What its choices depend on, besides the version of this package."""
        return self.name

    def with_cache(self, folder: str | os.PathLike[str] | None) -> Backend:
        """The same, keeping what it compiles in a folder, if it compiles anything."""
        return self

    @property
    def precision(self) -> str:
        """How exactly float32 is multiplied: "highest", "high" or "bfloat16"."""
        return "highest"

    def with_precision(self, precision: str) -> Backend:
        """The same, multiplying float32 less exactly where that is faster; few have such means."""
        return self

    def outline(self) -> Backend:
        """The same for `infer`: its results have the same shapes, and are found more quickly."""
        return self

    def infer(self, function: Replay, *specs: Spec) -> list[Spec]:
        """Shapes and dtypes of `function`'s results without running it. Compiled backends only."""
        raise NotImplementedError

    def compile(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable:
        """`replay`, a pure function of arrays, in its fastest form for arguments like these.

        They are arrays, or the `Spec` of one. The caller gives up the `donated` among them. Where
        there is a name, it tells what `replay` does, in other processes too.
        """
        return Executable(replay)

    def reserved(self) -> tuple[int, int]:
        """Bytes of the device's memory that the library holds and may come to hold; or zeros."""
        return 0, 0

    def padding(self) -> Padding | None:
        """How one compiled program can serve many sizes; None where sizes cost no compiling."""
        return None

    def explain(self, error: Exception) -> str | None:
        """What a library's error raised by a call means to a user, where it is a common one."""
        return None


def kind_of(dtype: np.dtype[Any]) -> str:
    """The standard's word for a dtype's kind, with the low-precision types in their places.

    >>> import ml_dtypes, numpy as np
    >>> kind_of(np.dtype(ml_dtypes.bfloat16)), kind_of(np.dtype(ml_dtypes.int4))
    ('real floating', 'signed integer')
    """
    if dtype.kind in "bfciu":
        kinds = {"b": "bool", "f": "real floating", "c": "complex floating"}
        return kinds.get(dtype.kind, "signed integer" if dtype.kind == "i" else "unsigned integer")
    if dtype.kind == "V" and dtype.fields is None:
        if not dtype.name.startswith(("int", "uint")):
            return "real floating"
        return "signed integer" if dtype.name.startswith("int") else "unsigned integer"
    return "other"


def isdtype(dtype: Any, kind: Any) -> bool:
    """The standard's `isdtype` for NumPy dtypes, knowing those of ml_dtypes."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return bool(np.dtype(dtype) == np.dtype(kind))
    found = kind_of(np.dtype(dtype))
    if kind == "integral":
        return found.endswith("integer")
    if kind == "numeric":
        return found not in ("bool", "other")
    return found == kind


def is_low_precision(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is one of ml_dtypes', in which NumPy's own loops do not compute."""
    return dtype.kind in "fV" and hasattr(ml_dtypes, dtype.name)  # float8_e5m2 is of kind f
