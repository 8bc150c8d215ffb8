"""What is so of JAX whether it is imported or not: its constants, and products on its CPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay, Spec, WrittenOut
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.host_memory import give_back_freed
from sardonyx.backends.host_steps import HostSteps
from sardonyx.backends.interpreter import HostKernels, Interpreter
from sardonyx.backends.jax import arrays, messages, onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu import packed, small_programs
from sardonyx.backends.on_device import OnDevice
from sardonyx.backends.operations.products import Link, PackedProduct, ProductChain

_WITHOUT_X64 = {
    "int64": np.dtype(np.int32),
    "uint64": np.dtype(np.uint32),
    "float64": np.dtype(np.float32),
    "complex128": np.dtype(np.complex64),
}

# XLA has no code for them on any platform.
SIX_BITS = frozenset(map(np.dtype, (ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)))

# With fewer multiplications XLA has finished before another kernel would start.
SMALLEST_PACKED = 2**14


class JaxTraits(OnDevice):
    """The part of the backend that needs no JAX."""

    name: ClassVar[str] = "jax"
    skips_padding = True
    differentiates = True
    reshapes_are_views: ClassVar[bool] = False
    follows_numpy: ClassVar[bool] = True
    embeds_up_to: ClassVar[int] = 128
    packs_up_to: ClassVar[int] = 4096

    @property
    def threads(self) -> int | None:
        """Maximum number of CPU threads of a call; None for all of the process."""
        return None

    def owns(self, value: object) -> bool:
        return arrays.is_array(value)

    def is_abstract(self, value: object) -> bool:
        return arrays.is_tracer(value)

    def wait(self, arrays: Sequence[Any]) -> None:
        # `jax.block_until_ready` takes as long as a small model, because it walks over a tree.
        for array in arrays:
            if (wait := getattr(array, "block_until_ready", None)) is not None:
                wait()

    def narrowed(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        # Users of JAX rarely switch its 64-bit mode on, and without it have no int64 to pass.
        return _WITHOUT_X64.get(dtype.name, dtype)

    def discard(self, array: Any) -> None:
        if arrays.is_array(array):
            array.delete()

    def written_out(
        self, replay: Replay, specs: Sequence[Spec], inputs: int, results: Sequence[Spec]
    ) -> WrittenOut | None:
        is_possible = self.reads_host_memory and not self.watches()
        return small_programs.written_out(replay, specs, inputs, results) if is_possible else None

    @property
    def limits_threads(self) -> bool:
        return self.threads is not None

    def packed_convolution(
        self, x: Spec, weight: Spec, *, epilogue: Epilogue, **options: Any
    ) -> PackedProduct | None:
        if not self.fuses or x.dtype != weight.dtype:
            return None
        layout = ConvolutionLayout.of(**options)
        kernel = onednn.convolution(x, weight, layout, epilogue=epilogue, threads=self.threads)
        return kernel or packed.convolution(x, weight, layout, epilogue=epilogue)

    def packed_matmul(
        self,
        x: Spec,
        weight: Spec,
        *,
        in_small_program: bool,
        single_rows: bool,
        **options: Any,
    ) -> PackedProduct | None:
        if not self.fuses or x.dtype != weight.dtype:
            return None
        # XLA itself multiplies a vector fast, and calling it costs less.
        rows = math.prod(x.shape[:-1])
        pairs = rows * math.prod(weight.shape)
        kernel = None
        if (rows > 1 or single_rows) and pairs >= SMALLEST_PACKED and not in_small_program:
            kernel = onednn.matrix_product(x, weight, threads=self.threads, **options)
        return kernel or packed.matrix_product(x, weight, **options)

    @property
    def host_kernels(self) -> HostKernels | None:
        """Kernels of the backend's own for NumPy's arrays."""
        return onednn.HostKernels(self.threads) if self.fuses else None

    @property
    def steps_without_kernels(self) -> bool:
        return self.steps_on_numpy() is not None and not (self.fuses and onednn.is_loaded())

    def steps_on_numpy(self, *, is_final: bool = False) -> Backend | None:
        return Interpreter(lambda: False, self.host_kernels, is_final=is_final)

    @property
    def begins_host_steps(self) -> bool:
        # Kernels on the host take less time than programs.
        has_kernels = self.fuses and onednn.may_be_used()
        return self.compiled and self.reads_host_memory and not has_kernels

    def for_host_steps(self) -> Backend | None:
        kernels = self.host_kernels
        return None if kernels is None else HostSteps(kernels)

    def release(self) -> None:
        if self.fuses:
            onednn.release()
            give_back_freed()

    def explain(self, error: Exception) -> str | None:
        return messages.explained(str(error))

    def product_chain(self, links: Sequence[Link], arrays: int) -> ProductChain | None:
        return onednn.chain(links, arrays)
