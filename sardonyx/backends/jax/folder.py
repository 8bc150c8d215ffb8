"""What programs and recordings of JAX depend on, which is known without importing JAX."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sardonyx.backends.compiled_folder import CompiledFolder, Place, common_libraries
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import Chain, PackedWeight, Product
from sardonyx.backends.jax.xla_cpu.packed import TurnedConvolution, TurnedMatrix
from sardonyx.backends.operations.products import Link

# The properties of a processor in Linux's list that do not change while it runs.
_OF_PROCESSORS = (
    "vendor_id", "cpu family", "model", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip


class JaxFolder(CompiledFolder):
    """A folder or file of a model on JAX; its recordings can be read before JAX is imported."""

    dataclasses = (
        Product,
        PackedWeight,
        Chain,
        Link,
        TurnedConvolution,
        TurnedMatrix,
        ConvolutionLayout,
    )

    def __init__(self, place: Place, *, of_processor: bool = True) -> None:
        super().__init__(place)
        self._of_processor = of_processor

    def __reduce__(self) -> Any:
        return partial(type(self), of_processor=self._of_processor), (self.entries.path,)

    def libraries(self) -> Mapping[str, str]:
        return libraries()

    def machine(self) -> Mapping[str, str]:
        return {"on another processor": processor()} if self._of_processor else {}


def identity(*words: object) -> str:
    """The device and the options, as `Backend.identity` has them."""
    return " ".join(map(str, words))


def kernels_of(threads: int) -> str:
    """The kernels beside XLA's, for so many threads."""
    return f"{onednn.identity()} {threads}"


@cache
def libraries() -> dict[str, str]:
    return {**common_libraries(), "jax": version("jax"), "jaxlib": version("jaxlib")}


@cache
def processor() -> str:
    """The processor's instruction set, because code for another may not run on it."""
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
    except OSError:
        first = ""
    lines = [line for line in first.splitlines() if line.startswith(_OF_PROCESSORS)]
    return "\n".join(lines) or f"{platform.machine()} {platform.processor()}"
