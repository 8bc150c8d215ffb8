"""Plans: graphs that cuDNN has built for certain arrays, and their runs on the current stream."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
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


@dataclass(eq=False, slots=True)
class TimeLeft:
    """What a process may spend on measuring: sizes that change with each call would never end."""

    seconds: float


TIME_LEFT = TimeLeft(3.0)


class Key(Protocol):
    """What a plan is for; equal keys have equal plans."""

    def __hash__(self) -> int: ...

    def build(self, cudnn: Any, handle: Any) -> Any:
        """Return the graph, to which nothing but engines and plans have to be added."""

    @property
    def dtype(self) -> Any: ...


@dataclass(eq=False, slots=True)
class Plan:
    """A graph and one of cuDNN's plans for it, by its place in their list.

    The graph runs the plan that was built or selected last.
    """

    graph: Any
    index: int
    workspace: int
    # Whether a result of it was compared with the expected one.
    is_trusted: bool = False

    @property
    def name(self) -> str:
        """The engine and its settings."""
        return str(self.graph.get_plan_name_at_index(self.index))

    def select(self) -> None:
        """Let the graph run this plan; it is not built again."""
        self.graph.build_plan_at_index(self.index)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why cuDNN is not used for a key."""

    reason: str


class Slower(Refusal):
    """cuDNN could be used for a key, but takes longer than the form without it."""

    __slots__ = ()


@dataclass(eq=False)
class Plans:
    """The plans of one device: the exact ones, or those that may round float32 to TF32.

    cuDNN forbids that threads share a handle at the same time, and not all its plans can be run by
    two threads at once. A run only adds kernels to a stream, so there is one handle, and a lock.
    """

    device: int
    is_exact: bool = True
    # Whether a plan is chosen by the times of several, or is the first one that is right.
    is_measured: bool = False
    # Held while a plan is tried out and chosen, so that each key is tried out by one thread.
    choosing: threading.RLock = field(default_factory=threading.RLock)
    _known: OrderedDict[Key, Plan | Refusal] = field(default_factory=OrderedDict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _handle: Any = None

    @property
    def measures_now(self) -> bool:
        return self.is_measured and TIME_LEFT.seconds > 0

    def find(self, key: Key) -> Plan | Refusal:
        """Return the plan for a key, the first one that can be built unless another was chosen."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
            if is_capturing():
                # Building may allocate or wait, which a stream that is captured forbids.
                return Refusal("a plan is not built while a CUDA graph is captured")
            found = self._built(key)
            self.settle(key, found)
            return found

    def settle(self, key: Key, found: Plan | Refusal) -> None:
        """Use this plan for a key from now on, or none."""
        with self._lock:
            if isinstance(found, Plan):
                found.select()
            self._known[key] = found
            while len(self._known) > MOST_PLANS:
                self._known.popitem(last=False)

    def candidates(self, first: Plan) -> Iterator[Plan]:
        """Build plan after plan of a graph, in cuDNN's order; the last one that came can be run."""
        plan: Plan | None = first
        while plan is not None:
            yield plan
            with self._lock:
                try:
                    plan = _next_plan(first.graph, plan.index + 1)
                except Exception:
                    # Why other plans do not exist matters to nobody, since there is one.
                    plan = None

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
        modes = [cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK]
        if self.measures_now:
            modes.insert(1, cudnn.heur_mode.B)
        try:
            graph = key.build(cudnn, self._on_current_stream(cudnn))
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans(modes)
            graph.deselect_numeric_notes(excluded_notes(cudnn, key.dtype, is_exact=self.is_exact))
            graph.deselect_workspace_greater_than(LARGEST_WORKSPACE)
            graph.check_support()
            return _next_plan(graph, 0)
        except Exception as error:
            # Whatever the reason is, the other forms of the call are right.
            return Refusal(first_line(error))

    def _on_current_stream(self, cudnn: Any) -> Any:
        if self._handle is None:
            self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=cupy.cuda.get_current_stream().ptr)
        return self._handle


@cache
def plans_of(device: int, *, is_exact: bool = True, is_measured: bool = False) -> Plans:
    """Return the plans of a device; if they are not exact, float32 may be rounded to TF32."""
    return Plans(device, is_exact, is_measured)


def is_capturing() -> bool:
    """Whether the current stream records a CUDA graph, or waits for one that does."""
    try:
        return bool(cupy.cuda.get_current_stream().is_capturing())
    except cupy.cuda.runtime.CUDARuntimeError:
        return True


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def _next_plan(graph: Any, start: int) -> Plan:
    """Build the first plan from a place on that can be built, and that did not come before.

    Two ways to guess the best plans may name the same ones.
    """
    earlier = {graph.get_plan_name_at_index(index) for index in range(start)}
    failure: Exception = LookupError("there is no plan that is exact and takes little memory")
    for index in range(start, graph.get_execution_plan_count()):
        if graph.get_plan_name_at_index(index) in earlier:
            continue
        try:
            graph.build_plan_at_index(index)
            return Plan(graph, index, int(graph.get_workspace_size_plan_at_index(index)))
        except Exception as error:
            failure = error
    raise failure
