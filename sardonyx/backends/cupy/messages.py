"""Common errors of CUDA and CuPy, in the user's terms."""

from __future__ import annotations

import re

import cupy

OUT_OF_MEMORY = "the device is out of memory"
# What the messages of CUDA's driver, of its runtime and of CuPy's loader mean.
EXPLANATIONS = {
    "cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY": OUT_OF_MEMORY,
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


def explained(error: Exception) -> str | None:
    """Return what an error means for the user; None if it says so itself."""
    if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
        return OUT_OF_MEMORY
    text = str(error)
    return next((why for pattern, why in EXPLANATIONS.items() if re.search(pattern, text)), None)
