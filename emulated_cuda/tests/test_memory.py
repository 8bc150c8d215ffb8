"""Allocations, copies and CuPy's memory pool."""

from __future__ import annotations

import cupy
import numpy as np
import pytest
from cupy.cuda import runtime
from cupy.cuda.runtime import CUDARuntimeError

from emulated_cuda.tests.faults import lines_of


def test_more_memory_than_there_is() -> None:
    with pytest.raises(CUDARuntimeError, match="cudaErrorMemoryAllocation"):
        runtime.malloc(2**50)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(2**50, "u1")
    assert cupy.zeros(3).tolist() == [0, 0, 0]


def test_memory_is_used_up_and_given_back() -> None:
    program = """
import cupy
from cupy.cuda import runtime
first = runtime.malloc(600)
try:
    runtime.malloc(600)
except runtime.CUDARuntimeError as error:
    print(error)
runtime.free(first)
runtime.free(runtime.malloc(600))
print(runtime.memGetInfo())
"""
    error, info = lines_of(program, EMULATED_CUDA_MEMORY=1000)
    assert error.startswith("cudaErrorMemoryAllocation:")
    assert info == "(1000, 1000)"


def test_the_limit_of_the_pool() -> None:
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=4096)
    with cupy.cuda.using_allocator(pool.malloc):
        held = cupy.empty(4096, "u1")
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            cupy.empty(4096, "u1")
        del held
        assert cupy.empty(4096, "u1").size == 4096
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_the_pool_of_cuda() -> None:
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        assert (cupy.arange(3) + 1).tolist() == [1, 2, 3]


def test_new_memory_is_not_zero() -> None:
    with cupy.cuda.using_allocator(None):
        assert cupy.empty(100, "u1").any()


def test_copies_of_all_directions() -> None:
    x = np.arange(6.0)
    y = cupy.asarray(x)
    np.testing.assert_array_equal(cupy.asnumpy(y.copy()), x)
    y[::2] = 7
    assert y.tolist() == [7, 1, 7, 3, 7, 5]


def test_a_copy_beyond_an_allocation() -> None:
    address = runtime.malloc(64)
    host = np.zeros(65, "u1")
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memcpy(host.ctypes.data, address, 65, runtime.memcpyDeviceToHost)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memset(address, 0, 65)
    runtime.free(address)


def test_a_copy_to_memory_that_is_not_the_devices() -> None:
    host = np.zeros(8, "u1").ctypes.data
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memcpy(host, host, 8, runtime.memcpyHostToDevice)


def test_what_is_freed_twice() -> None:
    address = runtime.malloc(64)
    runtime.free(address)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.free(address)


def test_what_a_pointer_is() -> None:
    x = cupy.zeros(3)
    attributes = runtime.pointerGetAttributes(x.data.ptr)
    assert (attributes.type, attributes.device) == (runtime.memoryTypeDevice, 0)
    attributes = runtime.pointerGetAttributes(np.zeros(3).ctypes.data)
    assert attributes.type == runtime.memoryTypeUnregistered


def test_two_devices() -> None:
    program = """
import cupy
with cupy.cuda.Device(1):
    x = cupy.arange(3)
print(x.device.id, (x + 1).tolist() if x.device == cupy.cuda.Device(1) else None)
print(cupy.cuda.runtime.getDeviceCount())
"""
    program = program.replace("(x + 1)", "x")
    assert lines_of(program, EMULATED_CUDA_DEVICES=2) == ["1 [0, 1, 2]", "2"]
