"""Segments on CuPy as fused kernels: compiled by NVRTC, launched on the current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.cupy.bits import data_of, new_array
from sardonyx.backends.executable import Executable, Replay
from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.backends.fusion.program import Launch, NotFused, Program, fused
from sardonyx.backends.standard import Shape

# Without fused multiply-add a chain of steps gives the same in one kernel as in several.
OPTIONS = ("-fmad=false",)


class FusedSegments(Backend):
    """Segments are traced and fused; one that cannot be runs step by step."""

    # Whether segments are fused at all.
    fuses_segments: bool = True

    def bind(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        note: Callable[[str], None],
    ) -> Executable:
        plain = super().bind(replay, arguments, note)
        if not self.fuses_segments or getattr(self, "checked", False):
            return plain
        try:
            program = fused(replay, arguments, self)
        except Exception as error:
            # Whatever the reason is, the steps one by one are right, and name the node at fault.
            note(f"{type(error).__name__}: {error}")
            return plain
        return Executable(FusedOrPlain(program, plain.run, note))

    def blank(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        return new_array(shape, dtype)

    def contiguous(self, array: Any, alignment: int) -> Any:
        data = data_of(array)
        if not data.flags.c_contiguous:
            return cupy.ascontiguousarray(data)
        return data if data.data.ptr % alignment == 0 else data.copy()

    def launcher(self, source: KernelSource) -> Launch:
        kernel = compiled_kernel(source.source, source.name)
        kernel.compile()
        grid, block = (source.blocks,), (source.threads,)

        def launch(arrays: Sequence[Any]) -> None:
            kernel(grid, block, tuple(map(data_of, arrays)))

        return launch


class FusedOrPlain:
    """A fused program, until it meets what it was not compiled for."""

    def __init__(self, program: Program, plain: Replay, note: Callable[[str], None]) -> None:
        self.program: Program | None = program
        self.plain = plain
        self.note = note

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        program = self.program
        if program is None:
            return self.plain(*arrays)
        try:
            return program(*arrays)
        except NotFused as error:
            self.program = None
            self.note(str(error))
            return self.plain(*arrays)
        except Exception:
            # The steps one by one raise the same, and name the node.
            return self.plain(*arrays)


@cache
def compiled_kernel(source: str, name: str) -> Any:
    """Return a kernel, the same one for equal sources; CuPy's folder of kernels has it compiled."""
    return cupy.RawKernel(source, name, OPTIONS)
