"""Names of streams, by which calls find memory and plans that earlier work of theirs may use."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import cupy
from cupy.cuda import runtime

_of_thread = threading.local()


def current_stream() -> Hashable:
    """Name the current stream; None if its memory is not this stream's alone."""
    pointer: int = cupy.cuda.get_current_stream().ptr
    # CUDA never captures the default stream, and may refuse to be asked about it.
    is_legacy = pointer in (0, runtime.streamLegacy)
    return None if not is_legacy and runtime.streamIsCapturing(pointer) else name_of(pointer)


def name_of(pointer: int) -> Hashable:
    """Name a stream of this thread.

    Each thread has a default stream of its own under one pointer. Its name is an object of the
    thread: a number could come back in a later thread.
    """
    if pointer != runtime.streamPerThread:
        return pointer
    name = getattr(_of_thread, "name", None)
    if name is None:
        _of_thread.name = name = object()
    return name
