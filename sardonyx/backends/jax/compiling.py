"""Compiles without Triton the programs for which XLA for CUDA cannot write Triton kernels."""

from __future__ import annotations

from typing import Any

import jax

# Words of errors about kernels that XLA generates with Triton for products. It finds no tiles where
# the factor of a product is computed from a transposed array of integers, as in quantized networks.
_OF_TRITON = ("output tile sizes", "gemm_fusion", "triton")
_WITHOUT_TRITON = {"xla_gpu_enable_triton_gemm": False}

WITHOUT_TRITON = "compiled without XLA's Triton kernels for products, which XLA could not tile"


def compiled(lowered: Any, platform: str) -> tuple[Any, str | None]:
    """Return the executable, and a reason if the usual options did not do."""
    try:
        return lowered.compile(), None
    except jax.errors.JaxRuntimeError as error:
        if platform not in ("cuda", "gpu") or not _is_of_triton(str(error)):
            raise
        try:
            return lowered.compile(compiler_options=_WITHOUT_TRITON), WITHOUT_TRITON
        except jax.errors.JaxRuntimeError:
            # The first error says what is wrong.
            raise error from None


def _is_of_triton(message: str) -> bool:
    is_internal = "RESOURCE_EXHAUSTED" not in message
    return is_internal and any(words in message.lower() for words in _OF_TRITON)
