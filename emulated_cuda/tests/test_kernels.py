"""Kernels in CUDA C++: threads, barriers, shuffles, atomics, and what the compiler says."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pytest


def run(body: str, *arrays: Any, threads: int = 64, blocks: int = 1, shared: int = 0) -> None:
    """Run a kernel whose parameters x, y... are the arrays."""
    names = {"f": "float", "i": "int", "I": "unsigned", "d": "double"}
    parameters = ", ".join(
        f"{names[array.dtype.char]}* {name}" for array, name in zip(arrays, "xyz", strict=False)
    )
    source = f'extern "C" __global__ void k({parameters}) {{ {body} }}'
    cupy.RawKernel(source, "k")((blocks,), (threads,), arrays, shared_mem=shared)


def test_threads_and_blocks_have_their_numbers() -> None:
    x = cupy.zeros(6, "i")
    body = "x[blockIdx.x * blockDim.x + threadIdx.x] = 10 * blockIdx.x + threadIdx.x;"
    run(body, x, threads=3, blocks=2)
    assert x.tolist() == [0, 1, 2, 10, 11, 12]


def test_a_sum_in_shared_memory() -> None:
    body = """
    extern __shared__ float s[];
    int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) { if (i < d) s[i] += s[i + d]; __syncthreads(); }
    if (i == 0) y[0] = s[0];
    """
    y = cupy.zeros(1, "f")
    run(body, cupy.arange(64, dtype="f"), y, shared=256)
    assert y.tolist() == [2016]


def test_shared_memory_begins_with_garbage() -> None:
    y = cupy.zeros(1, "i")
    run("extern __shared__ int s[]; x[0] = s[0] != 0;", y, threads=1, shared=4)
    assert y.tolist() == [1]


@pytest.mark.parametrize(
    ("shuffle", "expected"),
    [
        ("__shfl_sync(~0u, i, 3)", lambda i: i // 32 * 32 + 3),
        ("__shfl_sync(~0u, i, 3, 8)", lambda i: i // 8 * 8 + 3),
        ("__shfl_up_sync(~0u, i, 1)", lambda i: i - (i % 32 > 0)),
        ("__shfl_down_sync(~0u, i, 1)", lambda i: i + (i % 32 < 31)),
        ("__shfl_xor_sync(~0u, i, 5)", lambda i: i ^ 5),
    ],
)
def test_shuffles(shuffle: str, expected: Any) -> None:
    x = cupy.zeros(64, "i")
    run(f"int i = threadIdx.x; x[i] = {shuffle};", x)
    assert x.tolist() == [expected(i) for i in range(64)]


def test_votes() -> None:
    x = cupy.zeros(6, "I")
    body = """
    int i = threadIdx.x;
    unsigned odd = __ballot_sync(~0u, i % 2), any = __any_sync(~0u, i == 40);
    unsigned all = __all_sync(~0u, i < 32), count = __syncthreads_count(i < 5);
    if (i % 32 == 0) { x[i / 32] = any; x[2 + i / 32] = all; x[4] = odd; x[5] = count; }
    """
    run(body, x)
    assert x.tolist() == [0, 1, 1, 0, 0xAAAAAAAA, 5]


def test_a_warp_of_which_some_threads_have_ended() -> None:
    x = cupy.zeros(1, "i")
    run("if (threadIdx.x >= 8) return; int n = __popc(__ballot_sync(0xff, 1)); x[0] = n;", x)
    assert x.tolist() == [8]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("atomicAdd(x, i)", 5 + 2016),
        ("atomicSub(x, i)", 5 - 2016),
        ("atomicMax(x, i)", 63),
        ("atomicMin(x, i)", 0),
        ("atomicOr(x, i)", 63),
        ("atomicXor(x, 1)", 5),
        ("atomicCAS(x, i, i + 1)", 64),
    ],
)
def test_atomics(operation: str, expected: int) -> None:
    x = cupy.asarray([5], "i")
    run(f"int i = threadIdx.x; {operation};", x)
    assert x.tolist() == [expected]


def test_float_maxima_of_cupy_ignore_nan() -> None:
    """As CUDA's: they are built on fmaxf."""
    x = cupy.zeros(1, "f")
    cupy.maximum.at(x, cupy.asarray([0, 0]), cupy.asarray([1, np.nan], "f"))
    assert x.tolist() == [1]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int16", "uint64"])
def test_a_division_by_zero_is_no_fault(dtype: str) -> None:
    divide = cupy.ElementwiseKernel("T x, T y", "T z", "z = x / y", "divide")
    least = np.iinfo(dtype).min
    x = cupy.asarray([7, least, 6], dtype)
    y = cupy.asarray([0, -1 if least else 1, 2]).astype(dtype)
    assert divide(x, y).tolist()[1:] == [least, 3]


def test_a_template_by_the_name_of_its_expression() -> None:
    source = "template <class T> __global__ void twice(T* x) { x[threadIdx.x] *= T(2); }"
    module = cupy.RawModule(code=source, name_expressions=["twice<float>", "twice<int>"])
    for dtype, name in (("f", "twice<float>"), ("i", "twice<int>")):
        x = cupy.arange(3, dtype=dtype)
        module.get_function(name)((1,), (3,), (x,))
        assert x.tolist() == [0, 2, 4]


def test_constants_of_a_module() -> None:
    source = 'extern "C" { __constant__ int c[2]; __global__ void k(int* x) { x[0] = c[1]; } }'
    module = cupy.RawModule(code=source)
    cupy.ndarray(2, "i", module.get_global("c"))[...] = cupy.asarray([3, 4], "i")
    x = cupy.zeros(1, "i")
    module.get_function("k")((1,), (1,), (x,))
    assert x.tolist() == [4]


def test_half_and_bfloat16() -> None:
    source = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(float* x) {
      x[0] = __half2float(__float2half(1.0009765f));
      x[1] = __bfloat162float(__float2bfloat16(1.01f));
    }"""
    x = cupy.zeros(2, "f")
    cupy.RawKernel(source, "k")((1,), (1,), (x,))
    assert x.tolist() == [1.0009765625, 1.0078125]


def test_an_error_of_the_compiler_is_shown() -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException, match="nonsense"):
        cupy.RawKernel('extern "C" __global__ void k() { nonsense; }', "k").compile()


def test_a_kernel_that_is_not_there() -> None:
    module = cupy.RawModule(code='extern "C" __global__ void k() {}')
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_NOT_FOUND"):
        module.get_function("other")
