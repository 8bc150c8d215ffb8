"""A fused segment as one CUDA graph, with the memory at which it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import is_
from typing import Any

import cupy
from cupy.cuda import runtime

from sardonyx.backends.cupy.alignment import aligned
from sardonyx.backends.cupy.bits import copied, data_of, new_array
from sardonyx.backends.cupy.cublas_handles import workspace_of_capture
from sardonyx.backends.cupy.devices import CAPTURING
from sardonyx.backends.cupy.graph_memory import Allocation, GraphMemory, NotCaptured
from sardonyx.backends.fusion.arenas import Arena
from sardonyx.backends.fusion.program import Program
from sardonyx.backends.fusion.steps import UnexpectedArray
from sardonyx.logs import postponed


class CapturedSegment:
    """A graph for one stream, on which all its memory was allocated.

    Inputs are copied to where the graph reads them, and results away from where it writes them. So
    the caller may do with both what it likes. Weights are read where they are.
    """

    def __init__(
        self, program: Program, arrays: Sequence[Any], inputs: int, memory: GraphMemory
    ) -> None:
        """Capture the program for arrays like these; those after the inputs are weights."""
        self.used = 0
        self._program = program
        self._weights = tuple(arrays[inputs:])
        self._allocation = Allocation(memory, _allocator())
        allocate = self._allocation.allocate
        with cupy.cuda.using_allocator(allocate), _workspace(program) as workspace:
            self._buffers = {
                i: new_array(arrays[i].shape, arrays[i].dtype)
                for i in program.positions_read
                if i < inputs
            }
            taken = [self._buffers.get(i, array) for i, array in enumerate(arrays)]
            self._arena = program.new_arena()
            self._workspace = workspace
            self._graph, values = _recorded(program, taken, self._arena)
        self._results = {number: values[number] for number in program.computed}
        self._allocation.close()

    def reads_weights(self, arrays: Sequence[Any]) -> bool:
        """Whether the graph was captured with these very arrays."""
        return len(arrays) == len(self._weights) and all(map(is_, arrays, self._weights))

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Launch the graph on its stream, which is the current one."""
        for i, buffer in self._buffers.items():
            _copy(arrays[i], buffer)
        self._graph.launch()
        values = self._program.outer_values(arrays)
        for number, array in self._results.items():
            values[number] = copied(array)
        return self._program.results_of(values)


def _copy(array: Any, buffer: Any) -> None:
    """Copy an array, unless it lies in the buffer already."""
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise UnexpectedArray(
            f"{array.dtype}{list(array.shape)}, not {buffer.dtype}{list(buffer.shape)}"
        )
    if not array.flags.c_contiguous:
        cupy.copyto(data_of(buffer), aligned(data_of(array)))
    elif array.data.ptr != buffer.data.ptr:
        buffer.data.copy_from_device_async(array.data, buffer.nbytes)


def _workspace(program: Program) -> AbstractContextManager[Any]:
    """Enter to give products memory of the graph's own; any call of the library may multiply."""
    return workspace_of_capture() if program.called else nullcontext()


def _allocator() -> Any:
    allocator = cupy.cuda.get_allocator()
    if not isinstance(getattr(allocator, "__self__", None), cupy.cuda.MemoryPool):
        # Memory that is allocated in the order of a stream would become a part of the graph.
        raise NotCaptured("CuPy's allocator is not a MemoryPool")
    return allocator


def _recorded(program: Program, arrays: Sequence[Any], arena: Arena) -> tuple[Any, list[Any]]:
    """Return the graph of a program's work, and the program's values."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with postponed(), CAPTURING, stream:
        # In the mode in which this thread and others may allocate memory.
        stream.begin_capture(runtime.streamCaptureModeRelaxed)
        try:
            values = program.run(arrays, arena)
        except BaseException:
            _abandon(stream)
            raise
        return stream.end_capture(), values


def _abandon(stream: Any) -> None:
    """End a capture, and destroy what it has recorded so far."""
    try:
        graph = runtime.streamEndCapture(stream.ptr)
    except runtime.CUDARuntimeError:
        # The capture was invalid, and has ended with this.
        return
    runtime.graphDestroy(graph)
