"""One array library: the operations that ops use, and the services that the graph uses.

A backend knows nothing of ONNX. Its class binds the standard's functions to a library, and
overrides a primitive of `operations` if the library has a better form of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.captures import Captures
from sardonyx.backends.executable import (
    Executable,
    FirstTier,
    JoinableFunctions,
    KernelCalls,
    Replay,
    Spec,
    WrittenOut,
)
from sardonyx.backends.folder import Folder
from sardonyx.backends.operations import Operations
from sardonyx.backends.padding.protocols import Padding
from sardonyx.backends.standard import Array
from sardonyx.backends.stopwatch import HostStopwatch, OpTimes, Stopwatch
from sardonyx.errors import BackendUnavailable, InvalidInput


class Backend(Operations):
    """One array library on one device.

    Ops get it as `xp`, and use its `Operations`. The methods below are for the graph, which records
    and runs programs.
    """

    # Whether it compiles whole segments; otherwise steps run one by one, also while recording.
    compiled: bool = False
    # Whether the results of ops have the shapes and dtypes that NumPy's have.
    follows_numpy: ClassVar[bool] = False
    # Whether programs accept NumPy arrays, so that the caller need not upload them.
    takes_numpy: bool = False
    # Whether a reshape that is an output of a program shares the buffer of its input.
    reshapes_are_views: ClassVar[bool] = True
    # Constants up to this many bytes are written into the program instead of being passed to it.
    embeds_up_to: ClassVar[int] = 0
    # Vectors of up to this many bytes are passed together: each argument costs time at a call.
    packs_up_to: ClassVar[int] = 0
    # Whether matrices of so few bytes are, too, and as few as two arrays. A program then copies
    # them out at each call.
    packs_matrices: bool = False
    # Whether it may have its own kernels for products with an epilogue.
    fuses: bool = False
    # Whether calls wait for the compiler, unless the caller chooses.
    waits_by_default: bool = False
    # How exactly float32 is multiplied: a level of `PRECISIONS` (arguments.py).
    precision: str = "highest"
    # The cache of compiled programs for other processes, if there is one.
    folder: Folder | None = None
    # Whether what compiles is imported: until then a stored program takes longer than a first call.
    has_started: bool = True
    # Whether `bind` joins steps to fewer kernels, though it does not compile.
    joins_steps: ClassVar[bool] = False
    # Whether its compiler takes the names of steps.
    names_steps: bool = False
    # Whether its `attention` is faster than the operators that it replaces.
    attends: bool = False

    def __repr__(self) -> str:
        return f"<backend {self.name}>"

    def __reduce__(self) -> Any:
        """Refuse to pickle, unless a subclass says how another process finds the backend."""
        raise TypeError(
            f"The backend {self.name!r} cannot be pickled: give {type(self).__name__} a __reduce__."
        )

    def scope(self) -> AbstractContextManager[object]:
        """Return the context of every trace, compile and call; only it changes global state."""
        return nullcontext()

    def named_step(self, name: str) -> AbstractContextManager[object]:
        """Return the context in which a step of this name is traced."""
        return nullcontext()

    def wait(self, arrays: Sequence[Array]) -> None:
        """Return when the arrays are computed."""

    def stopwatch(self) -> Stopwatch:
        """Return what measures steps that run one by one."""
        return HostStopwatch(self.wait)

    def op_times(self) -> AbstractContextManager[OpTimes] | None:
        """Return the context in which the library profiles its programs, if it can."""
        return None

    @classmethod
    def has_accelerator(cls) -> bool:
        """Whether the library has a GPU or a TPU here."""
        return False

    @classmethod
    def limit_memory(cls, fraction: float) -> None:
        """Limit this process to a fraction of the memory of a GPU."""

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> Any:
        """Return the constructor's argument for a "cpu", "gpu" or "tpu"; None is the default."""
        if kind not in (None, "cpu") or index:
            raise BackendUnavailable(f"The backend {cls.name!r} has the CPU alone: pass 'cpu'.")
        return None

    @classmethod
    def device_of(cls, value: Any) -> Any:
        """Return the constructor's argument for the device of an array."""
        return None

    def owns(self, value: object) -> bool:
        """Whether `value` is an array of this library."""
        raise NotImplementedError

    def narrowed(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype in place of `dtype`, if users of the library rarely have that one."""
        return dtype

    def spec(self, value: Any) -> Spec:
        """Shape and dtype of an array of this library, or of NumPy."""
        dtype = value.dtype if isinstance(value, np.ndarray) else self.numpy_dtype(value.dtype)
        return Spec(tuple(value.shape), dtype)

    def nbytes(self, value: Any) -> int:
        """The size of an array in bytes."""
        shape, dtype = self.spec(value)
        return math.prod(shape) * dtype.itemsize

    def is_static(self, value: object) -> bool:
        return self.compiled and isinstance(value, np.ndarray)

    def key(self, value: Any) -> Any:
        """Return a random key, two uint32, for a number or for such a pair."""
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
        """Convert an array of another library (anything with `__dlpack__`) to this library."""
        raise NotImplementedError

    def to_donate(self, value: Array) -> Array:
        """Return an adopted array, or a copy if its memory is not the library's to donate."""
        return value

    def shield(self, value: Array) -> Array:
        """Return `value` or a copy, so that writing to the result does not change the original."""
        return value

    def mover(self, value: Array) -> Callable[[Any], Array] | None:
        """Return what brings an array of this library to where programs read it; None if nothing.

        It is called with arrays of later calls too, wherever they lie.
        """
        return None

    def own_result(self, value: Array) -> Array:
        """Return a call's result, or a copy if it is a view of a weight or a constant."""
        return value

    def creating_shared(self) -> AbstractContextManager[object]:
        """Return the context in which arrays are created that calls on any stream will read."""
        return nullcontext()

    def place(self, value: Any) -> Array:
        """Return an array that calls on any stream may read, from NumPy's or one of this library.

        One of this library was created in `creating_shared`, or comes from a caller.
        """
        return value if self.owns(value) else self.put(value)

    @property
    def for_ops(self) -> Backend:
        """What ops get while a program is compiled: another backend if this one stands for it."""
        return self

    def ready(self, arrays: list[Any]) -> list[Any]:
        """Return arrays that were placed, as compiled programs take them without further work."""
        return arrays

    def uncompiled(self) -> Backend:
        """The same without compiling: each step runs as soon as it is recorded."""
        return self

    @property
    def identity(self) -> str:
        """The device and the options: with these, equal programs compile to equal code."""
        return self.name

    def with_cache(self, folder: str | os.PathLike[str] | None) -> Backend:
        """The same with a cache of compiled programs in a folder, if it compiles."""
        return self

    def with_precision(self, precision: str) -> Backend:
        """The same with less exact products of float32, if the library has faster ones."""
        return self

    @property
    def limits_threads(self) -> bool:
        """Whether calls get fewer CPU threads than the process has, in the backend's scope."""
        return False

    def with_threads(self, threads: int) -> Backend:
        """The same with at most so many CPU threads for the work of a call."""
        raise InvalidInput(
            f"The number of threads of the backend {self.name!r} cannot be set on this device: "
            "leave out threads=, or load the model with device='cpu'."
        )

    def with_products_of_operands(self) -> Backend:
        """The same, which multiplies floats in their own type, whatever type it otherwise takes."""
        return self

    def outline(self) -> Backend:
        """The same for `infer` alone: the shapes are the same, and tracing takes less time."""
        return self

    def infer(self, function: Replay, *specs: Spec) -> list[Spec]:
        """Shapes and dtypes of `function`'s results for arrays like these, whatever their data."""
        raise NotImplementedError

    def bind(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        note: Callable[[str], None],
        *,
        inputs: int | None = None,
        captures: Captures | None = None,
    ) -> Executable:
        """Return a function of arrays from one of a backend and of arrays like `arguments`.

        For backends that do not compile. One that fuses steps passes `note` the reason if it runs
        them one by one. Arguments after the first `inputs` are the same at most calls. `captures`
        bounds the graphs of a backend that captures its work.
        """
        return self.stepped(replay, arguments)

    def stepped(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        *,
        inputs: int | None = None,
    ) -> Executable:
        """Return such a function that runs one step after the other."""
        return self.compile(partial(replay, self), arguments)

    def deferred(
        self, call: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[Spec]
    ) -> Sequence[Any] | None:
        """Return stand-ins for the results of a step that raised, if it can run later; or None."""
        return None

    def compile(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable:
        """Compile `replay`, a pure function of arrays, for arguments of these shapes and dtypes.

        An argument is an array or a `Spec`. The program may reuse the buffers of the `donated`
        ones. Equal names stand for equal functions, in other processes too.
        """
        return Executable(replay)

    def stored(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable | None:
        """What `compile` returns, if the cache in a folder has it."""
        return None

    def written_out(
        self, replay: Replay, specs: Sequence[Spec], inputs: int, results: Sequence[Spec]
    ) -> WrittenOut | None:
        """Return a program as calls of NumPy, if these take less time than a compiled program.

        The first arrays that `replay` takes after the backend are the inputs.
        """
        return None

    @property
    def interprets(self) -> bool:
        """Whether another library can run programs step by step, until they are compiled."""
        return False

    @property
    def reason_to_wait(self) -> str | None:
        """Why no library runs programs before they are compiled, if that could be otherwise."""
        return None

    def first_tier(self, is_overtaken: Callable[[], bool], *, is_final: bool = False) -> FirstTier:
        """Return that library; a run of it ends when the function says so.

        If it `is_final` no program follows by itself, and nothing is left to one.
        """
        raise NotImplementedError

    def steps_on_numpy(self, *, is_final: bool = False) -> Backend | None:
        """Return that library, if it is NumPy; its results are arrays of this backend, too.

        If it `is_final` no program follows by itself, and nothing is left to one.
        """
        return None

    def in_one_call(self, calls: KernelCalls) -> Replay:
        """Return the function that runs kernels of the library in less time if it can join them."""
        return calls.one_by_one()

    def joinable_functions(self) -> JoinableFunctions | None:
        """Return the functions of NumPy that can run in such a call beside kernels, if any can."""
        return None

    @property
    def steps_without_kernels(self) -> bool:
        """Whether steps run on NumPy alone: no kernel computes them as fast as a program does."""
        return False

    def idle_kernels(self) -> AbstractContextManager[object]:
        """Return a context in which kernels that this thread calls compute nothing."""
        return nullcontext()

    @property
    def begins_host_steps(self) -> bool:
        """Whether programs are to do ahead what a step on the host would take long for."""
        return False

    def for_host_steps(self) -> Backend | None:
        """Return NumPy with kernels for steps on the host; None where NumPy is all there is."""
        return None

    @property
    def reads_host_memory(self) -> bool:
        """Whether programs read NumPy arrays in place; then results of host steps stay there."""
        return False

    def watches(self) -> bool:
        """Whether a setting of the library lets compiled programs look for bad values."""
        return False

    def is_here(self, array: Array) -> bool:
        """Whether an array is on this backend's device, and on no other."""
        return True

    def discard(self, array: Array) -> None:
        """Free the memory of a donated array, which its owner does not use again."""

    def release(self) -> None:
        """Give the memory that is retained for later calls back to the system."""

    def reserved(self) -> tuple[int, int]:
        """The bytes of device memory that the library holds, and its limit; zeros if unknown."""
        return 0, 0

    def padding(self) -> Padding | None:
        """How one compiled program can serve many sizes; None if it does not compile."""
        return None

    def explain(self, error: Exception) -> str | None:
        """Explain a common error of the library in the user's terms; None for other errors."""
        return None
