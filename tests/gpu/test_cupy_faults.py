"""CuPy where something is wrong: what the errors say, and what stays usable."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu


def said_by(program: str, **variables: str) -> list[str]:
    """Run a program in a process of its own, and return the lines that it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize(
    ("message", "explanation"),
    [
        ("cudaErrorMemoryAllocation: out of memory", "out of memory"),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "out of memory"),
        ("CUBLAS_STATUS_ALLOC_FAILED", "device is out of memory"),
        ("cublasCreate_v2 returned ALLOC_FAILED", "device is out of memory"),
        ("CUSOLVER_STATUS_ALLOC_FAILED", "device is out of memory"),
        ("CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "device is out of memory"),
        ("CUFFT_ALLOC_FAILED", "device is out of memory"),
        ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "device is out of memory"),
        ("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "host is out of memory"),
        ("NVRTC_ERROR_OUT_OF_MEMORY (1)", "host is out of memory"),
        ('Failure finding "libcublasLt.so": No such file', "cannot find the CUDA toolkit"),
        ("Failed to find CUDA headers", "cannot find the CUDA toolkit"),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", "out of bounds"),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", "out of bounds"),
        ("cudaErrorMisalignedAddress: misaligned address", "a kernel failed"),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "a kernel failed"),
        ("cudaErrorAssert: device-side assert triggered", "a kernel failed"),
    ],
)
def test_messages_are_explained(cupy_backend: CupyBackend, message: str, explanation: str) -> None:
    assert explanation in (cupy_backend.explain(RuntimeError(message)) or "")


@pytest.mark.parametrize(
    "message",
    [
        "cudaErrorInvalidValue: invalid argument",
        "CUFFT_INVALID_SIZE",
        # Of a device with memory left.
        "CUFFT_INTERNAL_ERROR",
        "CUBLAS_STATUS_NOT_INITIALIZED",
    ],
)
def test_other_messages_are_left_alone(cupy_backend: CupyBackend, message: str) -> None:
    assert cupy_backend.explain(ValueError(message)) is None


FULL = """
from sardonyx.backends.cupy.backend import CupyBackend
for message in ("CUFFT_INTERNAL_ERROR", "CUBLAS_STATUS_NOT_INITIALIZED", "CUFFT_INVALID_SIZE"):
    print(CupyBackend().explain(RuntimeError(message)))
"""


def test_what_libraries_say_on_a_device_without_memory(cupy_backend: CupyBackend) -> None:
    counts = pytest.importorskip("emulated_cuda.counts", reason="no emulated device")
    if not counts.available():
        pytest.skip("only the emulated device can be small")
    told = said_by(FULL, EMULATED_CUDA_MEMORY=str(2**25))
    assert told == ["the device is out of memory", "the device is out of memory", "None"]


ILLEGAL = """
import cupy, numpy as np, sardonyx
from sardonyx.errors import InvalidInput
source = 'extern "C" __global__ void k(int* x) { x[1l << 40] = 1; }'
cupy.RawKernel(source, "k")((1,), (1,), (cupy.zeros(3, "i"),))
try:
    sardonyx.run_op("Add", np.ones(3, "f"), np.ones(3, "f"), backend="cupy")
except InvalidInput as error:
    print(error)
"""


def test_a_call_after_an_illegal_access_says_that_the_process_cannot_go_on(
    cupy_backend: CupyBackend,
) -> None:
    (line,) = said_by(ILLEGAL)
    assert "a kernel read or wrote out of bounds; the process has to be started anew" in line


EXHAUSTED = """
import cupy, numpy as np, sardonyx
from sardonyx.errors import LimitExceeded
held, size = [], 2**38
while size >= 2**20:
    try:
        held.append(cupy.empty(size, "u1"))
    except cupy.cuda.memory.OutOfMemoryError:
        size //= 2
x = np.ones(2**20, "f")
try:
    sardonyx.run_op("Add", x, x, backend="cupy")
except LimitExceeded as error:
    print(error)
del held
cupy.get_default_memory_pool().free_all_blocks()
print(float(sardonyx.run_op("Add", x, x, backend="cupy").sum()))
"""


@pytest.mark.whole_gpu
def test_out_of_memory_leaves_the_process_usable(cupy_backend: CupyBackend) -> None:
    error, total = said_by(EXHAUSTED)
    assert "out of memory" in error
    assert float(total) == 2 * 2**20


LIMITED = """
import cupy, sardonyx
if cupy.cuda.runtime.getDeviceCount() > 1:
    from sardonyx.backends import find, limit_memory
    limit_memory("cupy", 0.25)
    for device in (0, 1):
        _, limit = find("cupy", f"cuda:{device}").reserved()
        with cupy.cuda.Device(device):
            print(limit / cupy.cuda.runtime.memGetInfo()[1])
    limit_memory("cupy", 0.5)
    for device in (0, 1):
        _, limit = find("cupy", f"cuda:{device}").reserved()
        with cupy.cuda.Device(device):
            print(limit / cupy.cuda.runtime.memGetInfo()[1])
"""


def test_each_device_has_the_limit(cupy_backend: CupyBackend) -> None:
    shares = [float(line) for line in said_by(LIMITED, EMULATED_CUDA_DEVICES="2")]
    if not shares:
        pytest.skip("there is one GPU")
    assert shares == pytest.approx([0.25, 0.25, 0.5, 0.5], rel=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
def test_a_single_zero_keeps_its_sign(cupy_backend: CupyBackend, dtype: Any) -> None:
    zero = np.array(-0.0, dtype)
    for array in (cupy_backend.put(zero), cupy_backend.asarray(zero)):
        fetched = cupy_backend.fetch(array)
        assert (fetched.shape, fetched.dtype) == ((), zero.dtype)
        assert np.signbit(fetched)


def test_numbers_of_python_keep_their_sign_and_type(cupy_backend: CupyBackend) -> None:
    assert np.signbit(cupy_backend.fetch(cupy_backend.asarray(-0.0)))
    assert cupy_backend.asarray(True).dtype == np.bool_
    assert cupy_backend.asarray(3, dtype=np.int8).dtype == np.int8
