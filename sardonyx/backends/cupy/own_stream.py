"""A stream for each thread, for work of CuPy's that callers have not asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import cupy


class OwnStreams:
    """The default stream is the caller's, and other streams may be captured."""

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Work on this thread's stream, and wait for the work at the end."""
        stream = getattr(self._local, "stream", None)
        if stream is None:
            stream = self._local.stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            try:
                yield
            finally:
                stream.synchronize()
