"""Generated kernels, compiled by NVRTC once for a process and, in a cache's folder, for the next.

Without a cache, CuPy keeps them in its own folder, and does not check who may write to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ctypes import c_size_t
from functools import cache
from typing import Any

import cupy
from cupy._core.core import assemble_cupy_compiler_options
from cupy.cuda import compiler, function, nvrtc

from sardonyx.backends.compiled_folder import CompiledFolder, common_libraries, digest
from sardonyx.backends.cupy.cublas import Unavailable, loaded
from sardonyx.backends.cupy.cudnn.frontend import frontend
from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.logs import Log

_LOG = Log("kernels")

# Takes the numbers of blocks and of threads, and the arrays.
Kernel = Callable[[tuple[int], tuple[int], tuple[Any, ...]], None]

# Without fused multiply-add a chain of steps gives the same in one kernel as in several.
OPTIONS = ("-fmad=false",)
# CuPy adds it for every kernel that it compiles: subnormal float32 count as zero.
AS_CUPYS = ("-ftz=true",)


class KernelFolder(CompiledFolder):
    """Recordings, and kernels by their source, the GPU's architecture and the compiler."""

    def libraries(self) -> Mapping[str, str]:
        return _libraries()

    def machine(self) -> Mapping[str, str]:
        return {"with another NVIDIA driver": str(cupy.cuda.runtime.driverGetVersion())}

    def kernel(self, source: KernelSource) -> Kernel:
        """Return a kernel for the current device, compiled if the folder lacks it."""
        device = cupy.cuda.Device()
        parts = source.source, device.compute_capability, *OPTIONS, *AS_CUPYS
        file = f"{digest((*parts, *_libraries().values()))}.cubin"
        code = self.entries.read(file)
        if code is not None:
            try:
                return _on_device(code, source.name, device.id)
            except cupy.cuda.driver.CUDADriverError as error:
                # The driver has changed and does not take it any more.
                _LOG.info("CUDA refuses a cached kernel, which is compiled again: %s.", str(error))
        code = _compiled(source.source, device.compute_capability)
        self.entries.write(file, code)
        return _on_device(code, source.name, device.id)


@cache
def kernel_of_cupys(source: str, name: str) -> Kernel:
    """Return a kernel for any device, the same one for equal sources, by way of CuPy's folder."""
    start = time.perf_counter()
    kernel = cupy.RawKernel(source, name, OPTIONS)
    kernel.compile()
    _LOG.debug("CuPy compiled or loaded kernel %s in %.3f s.", name, time.perf_counter() - start)
    found: Kernel = kernel
    return found


@cache
def _compiled(source: str, architecture: str) -> bytes:
    """Return what NVRTC makes of a source, as the bytes of a file that CUDA loads."""
    options = (*assemble_cupy_compiler_options(OPTIONS), *AS_CUPYS)
    start = time.perf_counter()
    code, _ = compiler.compile_using_nvrtc(source, options, architecture, cache_in_memory=True)
    _LOG.debug("NVRTC compiled a kernel in %.3f s.", time.perf_counter() - start)
    return bytes(code)


@cache
def _on_device(code: bytes, name: str, device: int) -> Kernel:
    """Return the kernel of this name, loaded to the current device, whose number this is."""
    module = function.Module()
    module.load(code)
    found: Kernel = module.get_function(name)
    return found


@cache
def _libraries() -> dict[str, str]:
    """Versions of all that compiles kernels, or is asked while recording what it can compute."""
    cudnn = frontend()
    return {
        **common_libraries(),
        "cupy": cupy.__version__,
        "CUDA": str(cupy.cuda.runtime.runtimeGetVersion()),
        "NVRTC": ".".join(map(str, nvrtc.getVersion())),
        "cuBLASLt": _version_of_cublaslt(),
        "cuDNN": "none" if cudnn is None else str(cudnn.backend_version()),
    }


def _version_of_cublaslt() -> str:
    try:
        version = loaded().cublasLtGetVersion
    except (Unavailable, AttributeError):
        return "none"
    version.argtypes, version.restype = (), c_size_t
    return str(version())
