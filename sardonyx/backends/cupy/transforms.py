"""Fourier transforms by plans of cuFFT, one for each stream, which graphs can hold.

CuPy has one plan for all streams of a thread, whose work area transforms on two streams would both
write to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import cupy

from sardonyx.backends.cupy.devices import CAPTURING
from sardonyx.backends.cupy.graph_memory import NotCaptured, current_capture
from sardonyx.backends.cupy.streams import current_stream, name_of

# As many as CuPy keeps for each thread.
MOST_PLANS = 16


class Key(NamedTuple):
    """What a plan is for."""

    device: int
    stream: Hashable
    length: int
    batch: int
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """A plan with its work area, for one thread at a time: it is set to a stream, and then run."""

    plan: Any
    lock: Lock = field(default_factory=Lock)

    def run(self, x: Any, axis: int, inverse: bool) -> Any:
        with self.lock, self.plan:
            return _by_cupy(x, axis, inverse)


class Plans:
    """The plans that were used last."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Key, Plan] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: Key) -> Plan | None:
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
            return self._plans.get(key)

    def new(self, key: Key) -> Plan:
        """Create a plan on the current stream, in whose order its work area is used."""
        from cupy.cuda import cufft  # noqa: PLC0415  (which loads a large library)

        kind = cufft.CUFFT_C2C if key.dtype == "complex64" else cufft.CUFFT_Z2Z
        # cuFFT uploads tables and may wait for the device, which a capture does not survive.
        with CAPTURING:
            plan = Plan(cufft.Plan1d(key.length, kind, key.batch))
        dropped = []
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > MOST_PLANS:
                dropped.append(self._plans.popitem(last=False))
        # Outside of the lock: Python may run other code while memory is freed.
        dropped.clear()
        return plan

    def release(self) -> None:
        with self._lock:
            plans, self._plans = self._plans, OrderedDict()
        plans.clear()


PLANS = Plans()


def transformed(x: Any, axis: int, inverse: bool) -> Any:
    """Return the transform of complex numbers along an axis."""
    capture = current_capture()
    stream = current_stream() if capture is None else name_of(capture.stream.ptr)
    if not x.size or stream is None or cupy.fft.config.use_multi_gpus:
        if capture is not None and x.size:
            raise NotCaptured("Fourier transforms are divided over several GPUs")
        return _by_cupy(x, axis, inverse)
    length = x.shape[axis]
    key = Key(x.data.device_id, stream, length, x.size // length, x.dtype.name)
    plan = PLANS.get(key)
    if capture is not None:
        if plan is None:
            # For some lengths cuFFT crashes if one is created now: cupy/cupy, issue 7559.
            raise NotCaptured("the plan of a Fourier transform has made way for others")
        capture.keep(plan)
    return (plan or PLANS.new(key)).run(x, axis, inverse)


def _by_cupy(x: Any, axis: int, inverse: bool) -> Any:
    return (cupy.fft.ifft if inverse else cupy.fft.fft)(x, axis=axis)
