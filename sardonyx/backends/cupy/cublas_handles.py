"""The handles of cuBLAS: one for each device and thread, with its memory set by hand.

cuBLAS would allocate memory for a stream at its first product there, which is no part of a graph.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from functools import cache
from typing import Any, ClassVar

import cupy

from sardonyx.backends.cupy.cublas import NO_REDUCED_PRECISION, functions

MIB = 2**20
# NVIDIA recommends 32 MiB from the H100 on, and less than 8 MiB before.
WORKSPACE, OLDER_WORKSPACE = 32 * MIB, 8 * MIB
# So many streams of a handle have memory of their own.
MOST_STREAMS = 4


class Handle:
    """A handle, for one thread at a time."""

    def __init__(self) -> None:
        pointer = c_void_p()
        functions().call("cublasCreate_v2", byref(pointer))
        self.pointer = pointer.value
        functions().call("cublasSetMathMode", self.pointer, NO_REDUCED_PRECISION)
        # The stream that the handle is set to, and the memory for it.
        self.stream: int | None = None
        self.workspace: Any = None
        # Products that cuBLASLt has described for this thread.
        self.described: dict[Any, Any] = {}
        self._workspaces: OrderedDict[int, Any] = OrderedDict()
        # The memory for the graph that this thread captures, if it does.
        self._of_capture: Any = None

    def ready(self) -> int:
        """Return the pointer, for work on the current stream."""
        stream = cupy.cuda.get_current_stream().ptr
        if stream != self.stream:
            self._use(stream)
        assert self.pointer is not None
        return self.pointer

    def _use(self, stream: int) -> None:
        memory = self._of_capture
        if memory is None:
            memory = self._workspaces.pop(stream, None)
            self._workspaces[stream] = memory = memory if memory is not None else new_workspace()
            # What is freed here is used again only in the order of its stream.
            while len(self._workspaces) > MOST_STREAMS:
                self._workspaces.popitem(last=False)
        self.stream = None
        self.workspace = memory
        functions().call("cublasSetStream_v2", self.pointer, stream)
        # After the stream, which takes the memory away.
        size = workspace_bytes(cupy.cuda.runtime.getDevice())
        functions().call("cublasSetWorkspace_v2", self.pointer, memory.ptr, size)
        self.stream = stream

    @contextmanager
    def with_workspace(self, memory: Any) -> Iterator[None]:
        self._of_capture, self.stream = memory, None
        try:
            yield
        finally:
            self._of_capture = self.stream = self.workspace = None

    def forget_streams(self) -> None:
        self.stream = self.workspace = None
        self._workspaces.clear()


def new_workspace() -> Any:
    """Memory of the current device for one product at a time."""
    return cupy.cuda.alloc(workspace_bytes(cupy.cuda.runtime.getDevice()))


@cache
def workspace_bytes(device: int) -> int:
    major = int(cupy.cuda.Device(device).compute_capability[:-1])
    return WORKSPACE if major >= 9 else OLDER_WORKSPACE


class _HandlesOfThread:
    """Handles by device. Those of a thread that has ended serve the next one.

    Destroying one would wait for the device, and break a capture of another thread.
    """

    idle: ClassVar[dict[int, list[Handle]]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.by_device: dict[int, Handle] = {}

    def __del__(self) -> None:
        for device, handle in self.by_device.items():
            handle.forget_streams()
            self.idle.setdefault(device, []).append(handle)

    def on(self, device: int) -> Handle:
        handle = self.by_device.get(device)
        if handle is None:
            with self.lock:
                idle = self.idle.get(device)
                handle = idle.pop() if idle else None
            self.by_device[device] = handle = handle or Handle()
        return handle


_of_thread = threading.local()


def handle() -> Handle:
    """The handle of this thread for the current device."""
    handles = getattr(_of_thread, "handles", None)
    if handles is None:
        _of_thread.handles = handles = _HandlesOfThread()
    found: Handle = handles.on(cupy.cuda.runtime.getDevice())
    return found


@contextmanager
def workspace_of_capture() -> Iterator[Any]:
    """Enter before a capture begins: its products use memory that the context yields.

    Whoever replays the graph keeps this memory as long as the graph, and lets no two replays of it
    run at once. Other work of this thread waits until the context is left.
    """
    memory = new_workspace()
    with handle().with_workspace(memory):
        yield memory
