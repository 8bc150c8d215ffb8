"""Common errors of CUDA and CuPy, in the user's terms."""

from __future__ import annotations

import re

import cupy

OUT_OF_MEMORY = "the device is out of memory"
# What the messages of CUDA's driver, runtime and libraries, and of CuPy's loader mean.
EXPLANATIONS = {
    "NVRTC_ERROR_OUT_OF_MEMORY|HOST_ALLOCATION_FAILED": "the host is out of memory",
    "cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|ALLOC(ATION)?_FAILED"
    "|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES": OUT_OF_MEMORY,
    r"libnvrtc|cuda_fp16\.h|Failure finding|CUDA headers": (
        "CuPy cannot find the CUDA toolkit; install 'cupy-cuda13x[ctk]'"
    ),
    "cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS": (
        "a kernel read or wrote out of bounds; the process has to be started anew"
    ),
    "(cudaError|CUDA_ERROR_)(Misaligned|Hardware|Launch(Failure|Timeout)|Assert"
    "|MISALIGNED|HARDWARE|LAUNCH_(FAILED|TIMEOUT)|ASSERT)": (
        "a kernel failed, which ended the work on the GPU; the process has to be started anew"
    ),
}
# What libraries also say where they find no memory for a handle, a plan or a kernel. They allocate
# beside CuPy's pool.
_PERHAPS_MEMORY = re.compile(
    "CUFFT_(INTERNAL_ERROR|SETUP_FAILED)"
    "|(CUBLAS|CUSOLVER|CUSPARSE|CURAND|CUDNN)_STATUS_"
    "(NOT_INITIALIZED|INITIALIZATION_FAILED|INTERNAL_ERROR)"
)
# With less free memory, in bytes, such an error is one of memory.
_FEW = 2**28


def explained(error: Exception, device: int | None = None) -> str | None:
    """Return what an error on a device means for the user; None if it says so itself."""
    if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
        return OUT_OF_MEMORY
    text = str(error)
    if _PERHAPS_MEMORY.search(text) and _is_full(device):
        return OUT_OF_MEMORY
    return next((why for pattern, why in EXPLANATIONS.items() if re.search(pattern, text)), None)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether CuPy, CUDA or one of its libraries finds no memory on the current device."""
    return explained(error) == OUT_OF_MEMORY


def _is_full(device: int | None) -> bool:
    try:
        free, _ = cupy.cuda.Device(device).mem_info
    except cupy.cuda.runtime.CUDARuntimeError:
        # The work of the process on the device has ended already.
        return False
    return bool(free < _FEW)
