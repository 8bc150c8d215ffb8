"""The memory of a model's graphs on one stream, which nobody else gets while there are any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakSet

import cupy

# As CuPy's pool rounds sizes.
UNIT = 512
# No array gets a block that is larger by more than this.
MOST_TIMES = 4


class NotCaptured(Exception):  # noqa: N818  (a signal, not an error)
    """A segment cannot be captured; the text is the reason."""


class Block:
    """Memory of a stream, freed when no graph uses it any more."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer

    @property
    def size(self) -> int:
        return int(self.pointer.mem.size)


@dataclass(eq=False, slots=True, weakref_slot=True)
class GraphMemory:
    """Blocks that all graphs of a model share on a stream, where only one of them runs at a time.

    A call copies its inputs in, launches a graph, and copies the results out, under the lock. So
    nothing that one call left there is needed by the next.
    """

    stream: Any
    lock: Lock = field(default_factory=Lock)
    blocks: WeakSet[Block] = field(default_factory=WeakSet)


class Allocation:
    """Allocates for one capture: blocks of earlier graphs, and new ones of an allocator.

    What an array of the capture frees may become another array of it, since a graph does its work
    in the order of the capture. A pool of CuPy's own would leak the parts of blocks that it has
    divided if it went before its arrays, as it may after an error.
    """

    def __init__(self, memory: GraphMemory, allocator: Any) -> None:
        self._memory = memory
        self._allocator = allocator
        self._free = list(memory.blocks)
        # The blocks of the graph.
        self._taken: set[Block] = set()
        # What else the graph reads.
        self._kept: list[Any] = []

    @property
    def stream(self) -> Any:
        """The stream that the graph will run on, which is not the one that is capturing."""
        return self._memory.stream

    def keep(self, value: Any) -> None:
        """Hold what the graph reads as long as the graph lives."""
        self._kept.append(value)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Put work on the graph's stream itself: it is done once, before the graph runs."""
        with cupy.cuda.using_allocator(self._allocator), self._memory.stream:
            yield

    def allocate(self, size: int) -> Any:
        if size == 0:
            return self._allocator(0)
        size = -(-size // UNIT) * UNIT
        block = self._block(size)
        self._taken.add(block)
        loan, pointer = _Loan(block, self._free), block.pointer
        memory = cupy.cuda.UnownedMemory(pointer.ptr, size, loan, pointer.device_id)
        return cupy.cuda.MemoryPointer(memory, 0)

    def close(self) -> None:
        """Forget the blocks that the graph does not use, so that they can be freed."""
        self._free.clear()

    def _block(self, size: int) -> Block:
        """Return the smallest free block that is large enough, or a new one."""
        sizes = range(size, size * MOST_TIMES + 1)
        fitting = [block for block in self._free if block.size in sizes]
        if fitting:
            block = min(fitting, key=lambda one: one.size)
            self._free.remove(block)
            return block
        with self._memory.stream:
            block = Block(self._allocator(size))
        self._memory.blocks.add(block)
        return block


class _Loan:
    """A block as long as an array of a capture has it."""

    def __init__(self, block: Block, free: list[Block]) -> None:
        self._block = block
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._block)


def current_capture() -> Allocation | None:
    """Return what the segment allocates from that this thread captures, if it does."""
    allocator = getattr(cupy.cuda.get_allocator(), "__self__", None)
    return allocator if isinstance(allocator, Allocation) else None
