"""Arrays of other libraries, each with one protocol, over memory that CuPy or CUDA allocated.

And arrays of CuPy that lie where no kernel can read them.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class WithDlpack:
    """Nothing but DLPack, which notes the stream that each consumer passes."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.streams: list[Any] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.streams.append(options.get("stream"))
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class WithInterface:
    """Nothing but `__cuda_array_interface__`; `changed` replaces or adds entries of it."""

    def __init__(self, array: Any, **changed: Any) -> None:
        self._array = array
        described = array.__cuda_array_interface__
        self.__cuda_array_interface__ = {**described, "stream": None, **changed}


class Pinned:
    """An array in the host's pinned memory, as the interface describes it."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        import cupy  # noqa: PLC0415  (only where there is a device)

        self._memory = cupy.cuda.alloc_pinned_memory(value.nbytes)
        self.array = np.frombuffer(self._memory, value.dtype, value.size).reshape(value.shape)
        self.array[...] = value
        self.__cuda_array_interface__ = {
            "shape": value.shape,
            "typestr": value.dtype.str,
            "data": (self._memory.ptr, False),
            "version": 3,
        }


def askew(value: np.ndarray[Any, Any]) -> Any:
    """Return an array of CuPy whose elements lie at odd addresses."""
    import cupy  # noqa: PLC0415  (only where there is a device)

    memory = cupy.empty(value.nbytes + 1, np.uint8)
    memory[1:] = cupy.asarray(np.frombuffer(value.tobytes(), np.uint8))
    return cupy.ndarray(value.shape, value.dtype, memory.data + 1)
