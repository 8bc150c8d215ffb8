"""Plans: graphs that cuDNN has built for certain arrays, and their runs on the current stream."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import cupy
import numpy as np

from sardonyx.backends.cupy.cudnn.frontend import excluded_notes, frontend

# Plans of shapes that were used long ago are dropped.
MOST_PLANS = 1024
# The maximum bytes that a plan may take besides its arrays.
LARGEST_WORKSPACE = 2**28
# cuDNN's kernels read several elements at once.
ALIGNMENT = 16
# A first result may differ from the expected one by so much of its largest element.
TOLERANCE = 2**-6


class Key(Protocol):
    """What a plan is for; equal keys have equal plans."""

    def __hash__(self) -> int: ...

    def build(self, cudnn: Any, handle: Any) -> Any:
        """Return the graph, to which nothing but engines and plans have to be added."""

    @property
    def dtype(self) -> Any: ...


@dataclass(eq=False, slots=True)
class Plan:
    graph: Any
    workspace: int
    # Whether a result of it was compared with the expected one.
    is_trusted: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why cuDNN is not used for a key."""

    reason: str


@dataclass(eq=False)
class Plans:
    """The plans of one device: the exact ones, or those that may round float32 to TF32.

    cuDNN forbids that threads share a handle at the same time, and not all its plans can be run by
    two threads at once. A run only adds kernels to a stream, so there is one handle, and a lock.
    """

    device: int
    is_exact: bool = True
    _known: OrderedDict[Key, Plan | Refusal] = field(default_factory=OrderedDict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _handle: Any = None

    def find(self, key: Key) -> Plan | Refusal:
        """Return the plan for a key, built at its first use."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
            if is_capturing():
                # Building may allocate or wait, which a stream that is captured forbids.
                return Refusal("a plan is not built while a CUDA graph is captured")
            found = self._known[key] = self._built(key)
            while len(self._known) > MOST_PLANS:
                self._known.popitem(last=False)
            return found

    def refuse(self, key: Key, reason: str) -> None:
        """Use cuDNN for this key no more."""
        with self._lock:
            self._known[key] = Refusal(reason)

    def run(self, plan: Plan, arrays: Mapping[int, Any], workspace: Any) -> None:
        """Run a plan on arrays by their numbers in its graph; the result is one of them.

        Arrays of NumPy are single numbers, which cuDNN reads at once.
        """
        cudnn: Any = frontend()
        pointers = {
            number: array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
            for number, array in arrays.items()
        }
        with self._lock:
            handle = self._on_current_stream(cudnn)
            plan.graph.execute(pointers, workspace.data.ptr, handle=handle)

    def _built(self, key: Key) -> Plan | Refusal:
        cudnn: Any = frontend()
        try:
            graph = key.build(cudnn, self._on_current_stream(cudnn))
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.deselect_numeric_notes(excluded_notes(cudnn, key.dtype, is_exact=self.is_exact))
            graph.deselect_workspace_greater_than(LARGEST_WORKSPACE)
            graph.check_support()
            graph.build_plans()
            return Plan(graph, int(graph.get_workspace_size()))
        except Exception as error:
            # Whatever the reason is, the other forms of the call are right.
            lines = str(error).strip().splitlines()
            return Refusal(f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}")

    def _on_current_stream(self, cudnn: Any) -> Any:
        if self._handle is None:
            self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=cupy.cuda.get_current_stream().ptr)
        return self._handle


@cache
def plans_of(device: int) -> Plans:
    return Plans(device)


@cache
def rounding_plans_of(device: int) -> Plans:
    """Return the plans whose kernels may round factors of float32 to TF32."""
    return Plans(device, is_exact=False)


def is_capturing() -> bool:
    """Whether the current stream records a CUDA graph, or waits for one that does."""
    try:
        return bool(cupy.cuda.get_current_stream().is_capturing())
    except cupy.cuda.runtime.CUDARuntimeError:
        return True


def aligned(array: Any) -> Any:
    """Return the array, or a copy, in row-major order and at an address that cuDNN can read."""
    is_aligned = array.flags.c_contiguous and array.data.ptr % ALIGNMENT == 0
    return array if is_aligned else array.copy(order="C")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that cuDNN may compute."""

    key: Key
    # The arrays by their numbers in the plan's graph, and the number of the result.
    arrays: Callable[[], Mapping[int, Any]]
    result: int
    # The result without cuDNN; and what a plan's first one, or its beginning, should be.
    otherwise: Callable[[], Any]
    expected: Callable[[], Any]
    # Whether NaN and infinities have to be where they are expected.
    is_trial: bool = False

    def run(self, plans: Plans) -> Any:
        """Return the plan's result, or that without cuDNN if there is no plan, or a wrong one."""
        plan = plans.find(self.key)
        if isinstance(plan, Refusal) or (not plan.is_trusted and is_capturing()):
            return self.otherwise()
        try:
            arrays = self.arrays()
            workspace = cupy.empty(max(plan.workspace, 1), cupy.uint8)
        except cupy.cuda.memory.OutOfMemoryError:
            return self.otherwise()
        try:
            plans.run(plan, arrays, workspace)
        except Exception as error:
            plans.refuse(self.key, f"{type(error).__name__}: {error}")
            return self.otherwise()
        if plan.is_trusted:
            return arrays[self.result]
        agrees = _agrees(arrays[self.result], self.expected(), self.is_trial)
        if agrees is False:
            plans.refuse(self.key, "its first result is not the expected one")
        plan.is_trusted = bool(agrees)
        return arrays[self.result] if agrees else self.otherwise()


def tried_out(plans: Plans, key: Key, trial: Callable[[], Call]) -> Plan | Refusal:
    """Return the plan for a key, if it computes a trial as expected."""
    plan = plans.find(key)
    if isinstance(plan, Refusal) or plan.is_trusted:
        return plan
    if is_capturing():
        return Refusal("a plan is not tried out while a CUDA graph is captured")
    try:
        trial().run(plans)
    except cupy.cuda.memory.OutOfMemoryError:
        return Refusal("there is no memory for a trial")
    if plan.is_trusted:
        return plan
    found = plans.find(key)
    return found if isinstance(found, Refusal) else Refusal("it could not be tried out")


def _agrees(found: Any, expected: Any, is_trial: bool) -> bool | None:
    """Whether two arrays agree where both are finite; None if they are nowhere.

    In a trial the others have to be equal, and NaN in the same places.
    """
    found = found[tuple(slice(0, size) for size in expected.shape)]
    found, expected = (array.astype(cupy.float64) for array in (found, expected))
    both = cupy.isfinite(found) & cupy.isfinite(expected)
    is_same = (found == expected) | (cupy.isnan(found) & cupy.isnan(expected))
    if is_trial and not bool((both | is_same).all()):
        return False
    largest = cupy.where(both, cupy.abs(expected), 0).max()
    difference = cupy.where(both, cupy.abs(found - expected), 0).max()
    has_any, largest, difference = (float(x) for x in (both.any(), largest, difference))
    return difference <= TOLERANCE * largest if has_any else None
