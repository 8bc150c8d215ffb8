"""Segments on CuPy as fused kernels, compiled by NVRTC, on the current stream or in a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.captures import Captures
from sardonyx.backends.cupy.alignment import with_aligned
from sardonyx.backends.cupy.bits import data_of, new_array
from sardonyx.backends.cupy.compiled_kernels import KernelFolder, kernel_of_cupys
from sardonyx.backends.cupy.messages import is_out_of_memory
from sardonyx.backends.cupy.segment_graphs import SegmentGraphs
from sardonyx.backends.cupy.streams import current_stream
from sardonyx.backends.cupy.transforms import transformed
from sardonyx.backends.executable import Executable, Replay
from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.backends.fusion.program import Program, fused
from sardonyx.backends.fusion.steps import Launch, NotFused
from sardonyx.backends.standard import Shape


class FusedSegments(Backend):
    """Segments are traced and fused; one that cannot be runs step by step."""

    # Whether segments are fused at all.
    fuses_segments: bool = True
    # Whether those that are fused are captured as CUDA graphs.
    captures_segments: bool = True
    # The functions that write to an array `out`.
    writes_into: frozenset[str] = frozenset({"matmul", "matmul_and_more"})

    def bind(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        note: Callable[[str], None],
        *,
        inputs: int | None = None,
        captures: Captures | None = None,
    ) -> Executable:
        count = len(arguments) if inputs is None else inputs
        plain = self.stepped(replay, arguments, inputs=count)
        if not self.fuses_segments or getattr(self, "checked", False):
            return plain
        try:
            program = fused(replay, arguments, self)
        except Exception as error:
            # Whatever the reason is, the steps one by one are right, and name the node at fault.
            note(f"{type(error).__name__}: {error}")
            return plain
        graphs = None
        if self.captures_segments and captures is not None and program.launches:
            graphs = SegmentGraphs(program, count, captures)
        return Executable(FusedSegment(program, count, graphs, plain.run, note))

    def stepped(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        *,
        inputs: int | None = None,
    ) -> Executable:
        count = len(arguments) if inputs is None else inputs

        def aligned(xp: Backend, *arrays: Any) -> Sequence[Any]:
            return replay(xp, *with_aligned(arrays, count))

        return super().stepped(aligned, arguments)

    def blank(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        return new_array(shape, dtype)

    def placed(self, block: Any, offset: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        return new_array(shape, dtype, block.data + offset)

    def apart(self, array: Any, block: Any) -> Any:
        return array.copy() if array.data.mem is block.data.mem else array

    def current_stream(self) -> Hashable:
        return current_stream()

    def contiguous(self, array: Any, alignment: int) -> Any:
        data = data_of(array)
        if not data.flags.c_contiguous:
            return cupy.ascontiguousarray(data)
        return data if data.data.ptr % alignment == 0 else data.copy()

    def fft(self, x: Any, *, axis: int, inverse: bool = False) -> Any:
        return transformed(x, axis, inverse)

    def launcher(self, source: KernelSource) -> Launch:
        if isinstance(self.folder, KernelFolder):
            kernel = self.folder.kernel(source)
        else:
            kernel = kernel_of_cupys(source.source, source.name)
        grid, block = (source.blocks,), (source.threads,)

        def launch(arrays: Sequence[Any]) -> None:
            kernel(grid, block, tuple(map(data_of, arrays)))

        return launch


class FusedSegment:
    """Runs a segment as a graph, as one kernel after the other, or step by step."""

    def __init__(
        self,
        program: Program,
        inputs: int,
        graphs: SegmentGraphs | None,
        plain: Replay,
        note: Callable[[str], None],
    ) -> None:
        self.program: Program | None = program
        self.inputs = inputs
        self.graphs = graphs
        self.plain = plain
        self.note = note

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        program, graphs = self.program, self.graphs
        if program is None:
            return self.plain(*arrays)
        try:
            results = None if graphs is None else graphs.replay(arrays, current_stream())
            if results is None:
                # Calls before may have passed arrays of the same type that lay as they should.
                results = program(*with_aligned(arrays, self.inputs))
            return results
        except NotFused as error:
            self.program = self.graphs = None
            self.note(str(error))
        except Exception as error:
            # The steps one by one raise the same, and name the node.
            if is_out_of_memory(error):
                program.release()
                if graphs is not None:
                    graphs.release_all()
                # CUDA and its libraries have no use for what CuPy's pool holds.
                cupy.get_default_memory_pool().free_all_blocks()
        return self.plain(*arrays)
