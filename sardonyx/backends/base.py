"""One array library: the operations that ops use, and the services that the graph uses.

A backend knows nothing of ONNX. Its class binds the standard's functions to a library, and
overrides a primitive of `operations` wherever the library has something better.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.executable import Executable, Replay, Spec
from sardonyx.backends.folder import Folder
from sardonyx.backends.operations import Operations
from sardonyx.backends.padding.protocols import Padding
from sardonyx.backends.standard import Array
from sardonyx.errors import BackendUnavailable, InvalidInput


class Backend(Operations):
    """One array library on one device.

    Ops get it as `xp`, and use its `Operations`. What stands below is for the graph, which records
    and runs programs.
    """

    # Whether segments are compiled as a whole; otherwise steps run one by one, while recording too.
    compiled: bool = False
    # Whether programs take NumPy arrays as they are, so that none need be uploaded by hand.
    takes_numpy: bool = False
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
