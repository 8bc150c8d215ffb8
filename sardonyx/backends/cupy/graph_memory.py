"""The memory of one graph, which nobody else gets as long as the graph exists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cupy

# As CuPy's pool rounds sizes.
UNIT = 512


@dataclass(eq=False, slots=True)
class GraphMemory:
    """Allocates for a capture: blocks of an allocator, on the stream that is to run the graph.

    What an array of the capture frees may become another array of it, since the graph does its
    work in the order of the capture. A pool of CuPy's own would leak the parts of blocks that it
    has divided if it went before its arrays, as it may after an error.
    """

    allocator: Any
    stream: Any
    # Blocks that no array has at the moment.
    free: list[Any] = field(default_factory=list)

    def allocate(self, size: int) -> Any:
        if size == 0:
            return self.allocator(0)
        size = -(-size // UNIT) * UNIT
        loan = _Loan(self._block(size), self.free)
        memory = cupy.cuda.UnownedMemory(loan.block.ptr, size, loan, loan.block.device_id)
        return cupy.cuda.MemoryPointer(memory, 0)

    def _block(self, size: int) -> Any:
        """Return the smallest free block that is large enough, or a new one."""
        fitting = [block for block in self.free if block.mem.size >= size]
        if fitting:
            block = min(fitting, key=lambda one: one.mem.size)
            self.free.remove(block)
            return block
        with self.stream:
            return self.allocator(size)


@dataclass(eq=False, slots=True)
class _Loan:
    """A block as long as an array has it."""

    block: Any
    free: list[Any]

    def __del__(self) -> None:
        self.free.append(self.block)
