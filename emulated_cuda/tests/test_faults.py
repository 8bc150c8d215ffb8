"""Each error by CUDA's own code, as CuPy raises it."""

from __future__ import annotations

import cupy
import pytest
from cupy.cuda.runtime import CUDARuntimeError

from emulated_cuda.tests.faults import lines_of

CUDADriverError = cupy.cuda.driver.CUDADriverError

PROGRAM = """
import cupy
x = cupy.zeros(3, "i")
try:
    cupy.RawKernel('extern "C" __global__ void k(int* x) {{ {body} }}', "k")((1,), (2,), (x,))
    print("the launch has no error")
    cupy.cuda.Device().synchronize()
except Exception as error:
    print(error)
try:
    cupy.zeros(3).get()
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("x[1l << 40] = 1;", "IllegalAddress"),
        ("*(int*)0 = 1;", "IllegalAddress"),
        ("*(int*)((char*)x + 1) = 1;", "MisalignedAddress"),
        ("assert(x == nullptr);", "Assert"),
        ("__trap();", "LaunchFailure"),
        ("if (threadIdx.x) __syncwarp(); else __syncthreads();", "LaunchTimeout"),
        (
            "__syncthreads(); volatile char a[1 << 20]; for (int i = (1 << 20) - 1; i >= 0; i--)"
            " a[i] = 1; x[0] = a[5];",
            "HardwareStackError",
        ),
    ],
)
def test_a_fault_of_a_kernel_ends_the_context(body: str, error: str) -> None:
    launch, first, second = lines_of(PROGRAM.format(body=body))
    assert launch == "the launch has no error"
    assert first.startswith(f"cudaError{error}:")
    assert second.startswith(("cudaError", "CUDA_ERROR_"))


BEYOND = """
import cupy
cupy.cuda.set_allocator(None)
x = cupy.zeros(4, "i")
kernel = cupy.RawKernel('extern "C" __global__ void k(int* x, int i) { x[i] = 1; }', "k")
kernel((1,), (1,), (x, 3))
cupy.cuda.Device().synchronize()
print(x.tolist())
kernel((1,), (1,), (x, 4))
try:
    cupy.cuda.Device().synchronize()
except Exception as error:
    print(error)
"""


def test_an_element_beyond_an_allocation() -> None:
    values, error = lines_of(BEYOND, EMULATED_CUDA_ALIGNMENT=16)
    assert values == "[0, 0, 0, 1]"
    assert error.startswith("cudaErrorIllegalAddress:")


AFTER_FREE = """
import cupy
cupy.cuda.set_allocator(None)
x = cupy.zeros(4, "i")
address = x.data.ptr
del x
other = cupy.zeros(4, "i")
cupy.RawKernel('extern "C" __global__ void k(int* x) { x[0] = 1; }', "k")((1,), (1,), (address,))
try:
    cupy.cuda.Device().synchronize()
except Exception as error:
    print(error)
"""


def test_memory_after_its_end() -> None:
    (error,) = lines_of(AFTER_FREE.replace("(address,)", "(cupy.uintp(address),)"))
    assert error.startswith("cudaErrorIllegalAddress:")


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1,), (2048,), 0),
        ((1,), (1, 1, 65), 0),
        ((1, 65536), (1,), 0),
        ((1,), (1,), 49 << 10),
    ],
)
def test_a_launch_that_is_too_large(
    grid: tuple[int, ...], block: tuple[int, ...], shared: int
) -> None:
    kernel = cupy.RawKernel('extern "C" __global__ void k() {}', "k")
    with pytest.raises(CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel(grid, block, (), shared_mem=shared)
    kernel((1,), (1,), ())  # the context goes on


def test_shared_memory_up_to_the_limit_has_to_be_asked_for() -> None:
    # A source of its own: CuPy keeps one function per source, and the function keeps the limit.
    kernel = cupy.RawKernel(
        'extern "C" __global__ void ask_for_shared_memory() {}', "ask_for_shared_memory"
    )
    kernel.max_dynamic_shared_size_bytes = 227 << 10
    kernel((1,), (1,), (), shared_mem=227 << 10)
    with pytest.raises(CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel.max_dynamic_shared_size_bytes = 228 << 10


def test_a_grid_that_waits_for_itself_is_not_emulated() -> None:
    source = 'extern "C" __global__ void k() {}'
    kernel = cupy.RawKernel(source, "k", enable_cooperative_groups=True)
    kernel((1,), (1,), ())
    with pytest.raises(CUDADriverError, match="CUDA_ERROR_NOT_SUPPORTED"):
        kernel((2,), (1,), ())


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidDevice"):
        cupy.cuda.Device(1).use()


def test_no_device_at_all() -> None:
    program = "import cupy; print(cupy.is_available())"
    assert lines_of(program, EMULATED_CUDA_DEVICES=0) == ["False"]


TRANSFORM = """
import cupy
from cupy.cuda import cufft
x = cupy.ones(8, "F")
plan = cufft.Plan1d(8, cufft.CUFFT_C2C, 1)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    stream.begin_capture()
    plan.fft(x, x, cufft.CUFFT_FORWARD)
    graph = stream.end_capture()
graph.launch()
print(x[0].get().real)
del plan
try:
    graph.launch()
    cupy.cuda.Device().synchronize()
except Exception as error:
    print(error)
"""


def test_a_graph_of_a_transform_needs_its_plan() -> None:
    first, error = lines_of(TRANSFORM)
    assert first == "8.0"
    assert error.startswith("cudaErrorIllegalAddress:")
