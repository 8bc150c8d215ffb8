"""CuPy: CUDA. Steps run one by one, each as CuPy's own kernels or as calls of cuBLAS."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import cupy
import ml_dtypes
import numpy as np
from cupyx.scipy.special import erf

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Condition
from sardonyx.backends.cupy import bit_functions
from sardonyx.backends.cupy.alignment import aligned, is_askew
from sardonyx.backends.cupy.bit_functions import LIBRARY, BitFunctions, carrying, computed, moved
from sardonyx.backends.cupy.bits import Bits, fetched
from sardonyx.backends.cupy.compiled_kernels import KernelFolder
from sardonyx.backends.cupy.cudnn.operations import CudnnOperations
from sardonyx.backends.cupy.devices import fork, limit_pool, present_device
from sardonyx.backends.cupy.event_stopwatch import EventStopwatch
from sardonyx.backends.cupy.exchange import imported, uploaded
from sardonyx.backends.cupy.library_products import LibraryProducts
from sardonyx.backends.cupy.messages import explained
from sardonyx.backends.cupy.residents import LeasedMemory, residents_of
from sardonyx.backends.cupy.transforms import PLANS
from sardonyx.backends.dlpack import on_host
from sardonyx.backends.executable import Executable, Replay
from sardonyx.backends.fusion.narrow_types import NARROW
from sardonyx.backends.numpy import HOST
from sardonyx.backends.on_device import OnDevice
from sardonyx.backends.stopwatch import Stopwatch
from sardonyx.errors import BackendUnavailable

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = frozenset(map(np.dtype, "?bhilBHILefdFD")) | {BFLOAT16} | NARROW
ARRAYS = (cupy.ndarray, Bits)
# The functions that CuPy lacks for bfloat16 and that need nothing but a wider type.
IN_FLOAT32 = ("cumulative_prod", "cumulative_sum", "round")


class CupyBackend(CudnnOperations, LibraryProducts, BitFunctions, OnDevice):
    """One CUDA device. Products of float32 are exact unless `precision` or CUPY_TF32 allow less."""

    name: ClassVar[str] = "cupy"
    joins_steps: ClassVar[bool] = True
    # The limit of memory, and the devices in use: CuPy's pool has a limit for each device.
    _fraction: ClassVar[float | None] = None
    _in_use: ClassVar[set[int]] = set()

    def __init__(self, device: int | None = None) -> None:
        super().__init__(LIBRARY)
        for name in IN_FLOAT32:
            setattr(self, name, partial(self._in_float32, getattr(cupy, name)))
        self.device = present_device(device)
        self._in_use.add(self.device)
        if self._fraction is not None:
            limit_pool(self.device, self._fraction)
        self._fork = fork()
        # Of each thread, while it runs a segment: the conditions that were checked on the device.
        self._pending = threading.local()

    def __reduce__(self) -> Any:
        names = ("checked", "folder", "precision")
        return CupyBackend, (self.device,), {name: getattr(self, name) for name in names}

    # -- the standard, where CuPy departs from it -------------------------------------------------

    def asarray(self, x: Any, **options: Any) -> Any:
        if isinstance(x, np.ndarray):
            self.dtype(x.dtype)
        return uploaded(x, **options)

    @carrying(moved)
    def unstack(self, x: Any, *, axis: int = 0) -> Any:
        return tuple(cupy.moveaxis(x, axis, 0))

    @carrying(computed("vecdot"))
    def vecdot(self, a: Any, b: Any, *, axis: int = -1) -> Any:
        a, b = cupy.moveaxis(a, axis, -1), cupy.moveaxis(b, axis, -1)
        return self.matmul(cupy.conj(a)[..., None, :], b[..., None])[..., 0, 0]

    # CuPy computes in bfloat16 element by element, but lacks it in these and IN_FLOAT32.

    @carrying(bit_functions.chosen)
    def where(self, condition: Any, x: Any, y: Any) -> Any:
        if _is_bfloat16(x) or _is_bfloat16(y):
            return cupy.where(condition, _widened(x), _widened(y)).astype(BFLOAT16)
        return cupy.where(condition, x, y)

    @carrying(moved)
    def tril(self, x: Any, **options: Any) -> Any:
        return self._in_float32(cupy.tril, x, **options)

    @carrying(moved)
    def triu(self, x: Any, **options: Any) -> Any:
        return self._in_float32(cupy.triu, x, **options)

    @carrying(computed("argmax"))
    def argmax(self, x: Any, **options: Any) -> Any:
        return cupy.argmax(_widened(x), **options)

    @carrying(computed("argmin"))
    def argmin(self, x: Any, **options: Any) -> Any:
        return cupy.argmin(_widened(x), **options)

    # And it orders NaN by its sign.

    @carrying(computed("sort"))
    def sort(self, x: Any, **options: Any) -> Any:
        return self._in_float32(super().sort, _with_plain_nans(x), **options)

    @carrying(computed("argsort"))
    def argsort(self, x: Any, **options: Any) -> Any:
        return super().argsort(_with_plain_nans(_widened(x)), **options)

    # -- primitives for ops -----------------------------------------------------------------------

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        if dtype not in DTYPES:
            raise TypeError(
                f"CuPy has no arrays of {dtype}; cast to a type that it has, or run the model on "
                "JAX or NumPy"
            )
        return dtype

    @carrying(bit_functions.padded)
    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        if isinstance(value, cupy.ndarray):
            return Backend.pad(self, x, widths, value)
        return super().pad(x, widths, value)

    def _windows(self, x: Any, sizes: Sequence[int]) -> Any:
        # CuPy's sliding_window_view reads the sizes back from the device, for which the host waits.
        places = [n - size + 1 for n, size in zip(x.shape[2:], sizes, strict=True)]
        if min(places, default=1) < 1:
            raise ValueError(f"windows of {tuple(sizes)} do not fit into {x.shape[2:]}")
        shape, strides = (*x.shape[:2], *places, *sizes), (*x.strides, *x.strides[2:])
        return cupy.lib.stride_tricks.as_strided(x, shape, strides)

    # CuPy wraps indices that are out of range. Here they read the nearest element, and write none.

    @carrying(moved)
    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        return cupy.take(x, _nearest(indices, x.shape[axis]), axis=axis)

    @carrying(moved)
    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        return cupy.take_along_axis(x, _nearest(indices, x.shape[axis]), axis=axis)

    @carrying(moved)
    def gather(self, x: Any, places: Any) -> Any:
        return x[tuple(map(_nearest, places, x.shape))]

    @carrying(bit_functions.scattered)
    def scatter(self, x: Any, places: Any, updates: Any, combine: str | None = None) -> Any:
        """Writes to one row more than `x` has, which takes the updates that are out of range."""
        sizes, rest = x.shape[: len(places)], x.shape[len(places) :]
        rows = cupy.zeros((), np.int64)
        for place, size in zip(places, sizes, strict=True):
            rows = _row(rows, place.astype(np.int64, copy=False), size)
        count = math.prod(sizes)
        out = cupy.empty((count + 1, *rest), x.dtype)
        out[:count] = x.reshape((count, *rest))
        out[count] = 0
        rows, updates = rows.reshape(-1), updates.reshape((rows.size, *rest))
        if combine is None or (
            combine != "mul" and x.dtype.char in "iILQfd" and x.dtype != "int64"
        ):
            self._write_to(out, rows, updates, combine)
            if combine in ("max", "min") and x.dtype.kind == "f":
                # CUDA's atomic operations take the number where there is NaN.
                self._write_to(out, rows, cupy.where(cupy.isnan(updates), updates, 0), "add")
                out[:count][cupy.isnan(x).reshape((count, *rest))] = np.nan
        else:
            # CUDA's atomic operations know neither products nor the other types.
            on_host = self.fetch(out), (self.fetch(rows),), self.fetch(updates)
            out = self.put(HOST.scatter(*on_host, combine))
        return out[:count].reshape(x.shape)

    @carrying(computed("erf"))
    def erf(self, x: Any) -> Any:
        # CuPy has it for float32 and float64, and would give float64 for float16.
        return erf(x.astype(np.float32)).astype(x.dtype) if x.dtype.itemsize == 2 else erf(x)

    def with_precision(self, precision: str) -> Any:
        return self._changed(precision=precision)

    # -- conditions on data -----------------------------------------------------------------------

    def with_checks(self) -> Any:
        return self._changed(checked=True)

    def check(self, x: Any, condition: Condition) -> None:
        pending = getattr(self._pending, "checks", None)
        if pending is None:
            super().check(x, condition)
        elif x.size:
            pending.append((condition, cupy.all(condition.holds(x[condition.part]))))

    def compile(self, replay: Replay, arguments: Sequence[Any], **options: Any) -> Executable:
        return Executable(partial(self._reading, replay) if self.checked else replay)

    def _reading(self, replay: Replay, *arrays: Any) -> Any:
        """Run a segment, and read once, at its end, which conditions hold."""
        pending: list[tuple[Condition, Any]] = []
        self._pending.checks = pending
        try:
            results = replay(*arrays)
        finally:
            self._pending.checks = None
        if pending:
            hold = cupy.asnumpy(cupy.stack([holds for _, holds in pending]))
            for (condition, _), holds in zip(pending, hold.tolist(), strict=True):
                if not holds:
                    # The call is traced once more for this, step by step, which names the node.
                    raise BadData(condition.reason("a value"))
        return results

    # -- for the graph ----------------------------------------------------------------------------

    def scope(self) -> Any:
        self._fork.refuse()
        return cupy.cuda.Device(self.device)

    def wait(self, arrays: Sequence[Any]) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def stopwatch(self) -> Stopwatch:
        return EventStopwatch()

    @classmethod
    def has_accelerator(cls) -> bool:
        return bool(cupy.is_available())

    @classmethod
    def limit_memory(cls, fraction: float) -> None:
        """Limit the devices in use, and each other one when it is first used.

        Asking for the memory of a device takes some of it, so unused devices are not asked.
        """
        cls._fraction = fraction
        for device in cls._in_use | {present_device(None)}:
            limit_pool(device, fraction)

    def reserved(self) -> tuple[int, int]:
        with self.scope():
            pool = cupy.get_default_memory_pool()
            return int(pool.total_bytes()), int(pool.get_limit())

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> int:
        if kind not in (None, "gpu"):
            raise BackendUnavailable(f"CuPy runs only on NVIDIA GPUs, not on a {kind!r}")
        fork().refuse()
        return present_device(index)

    @classmethod
    def device_of(cls, value: Any) -> int:
        return int(value.data.device_id)

    def owns(self, value: object) -> bool:
        """Only arrays of this very device: those of others are adopted, which brings them here."""
        return isinstance(value, ARRAYS) and value.data.device_id == self.device

    def mover(self, value: Any) -> Callable[[Any], Any] | None:
        # To look at each array of each call would cost too much: segments expect askew ones, too.
        return aligned if is_askew(value) else None

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        self.dtype(value.dtype)
        with self.scope():
            return uploaded(value)

    def creating_shared(self) -> AbstractContextManager[object]:
        return residents_of(self.device).creating()

    def place(self, value: Any) -> Any:
        residents = residents_of(self.device)
        with residents.creating():
            array = value if self.owns(value) else self.put(value)
        return residents.lease(array)

    @property
    def identity(self) -> str:
        name = cupy.cuda.runtime.getDeviceProperties(self.device)["name"].decode()
        capability = cupy.cuda.Device(self.device).compute_capability
        return f"{self.name} {name} {capability} {self.checked} {self.precision}"

    def with_cache(self, folder: str | os.PathLike[str] | None) -> Any:
        return self._changed(folder=None if folder is None else KernelFolder(folder))

    def release(self) -> None:
        """Give the blocks that CuPy's pools retain back to the device, and to the host."""
        with self.scope():
            residents_of(self.device).free_retired()
            PLANS.release()
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()

    def fetch(self, value: Any) -> Any:
        with self.scope():
            return fetched(value)

    def adopt(self, value: Any) -> Any:
        """Arrays of this device are shared, those of others and of the host copied to it."""
        with self.scope():
            array = imported(value, self.device)
            return self.put(on_host(value)) if array is None else array

    def shield(self, value: Any) -> Any:
        """A copy: CuPy has no read-only arrays."""
        with self.scope():
            return value.copy()

    def own_result(self, value: Any) -> Any:
        return self.shield(value) if isinstance(value.data.mem, LeasedMemory) else value

    def explain(self, error: Exception) -> str | None:
        return explained(error, self.device)


# The row of an element from its row by the axes before; -1, the last row, if it is out of range.
_row = cupy.ElementwiseKernel(
    "int64 before, int64 place, int64 size",
    "int64 row",
    "row = before < 0 || place < -size || place >= size"
    " ? -1 : before * size + (place < 0 ? place + size : place)",
    "sardonyx_row",
)


def _nearest(indices: Any, size: int) -> Any:
    """The indices, those out of range moved to the nearest element."""
    return cupy.clip(indices.astype(np.int64, copy=False), -size, max(size - 1, 0))


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, cupy.ndarray) and value.dtype == BFLOAT16


def _with_plain_nans(x: Any) -> Any:
    return cupy.where(cupy.isnan(x), cupy.nan, x).astype(x.dtype) if x.dtype.kind == "f" else x


def _widened(value: Any) -> Any:
    return value.astype(np.float32) if _is_bfloat16(value) else value
