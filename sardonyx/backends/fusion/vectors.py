"""Elements that lie side by side, read and written as one number of up to 16 bytes."""

from __future__ import annotations

from sardonyx.backends.fusion.c_types import memory_type
from sardonyx.backends.fusion.kernels import Kernel
from sardonyx.backends.fusion.nodes import Node, Reduction

# What one instruction moves, and what arrays have to be aligned to.
BYTES = 16
# Below this size it matters more that there are many threads than that each moves much.
FEWEST_ELEMENTS = 2**18


def elements_per_thread(kernel: Kernel) -> int:
    """Return how many neighbouring elements a thread computes: 1 where it gains nothing."""
    size = kernel.space.size
    if size < FEWEST_ELEMENTS or any(isinstance(node, Reduction) for node in kernel.inlined):
        return 1
    arrays = [*kernel.stores, *(leaf for leaf in kernel.leaves if reads_in_order(kernel, leaf))]
    together = BYTES // max(node.dtype.itemsize for node in arrays)
    while size % together:
        together //= 2
    return together


def reads_in_order(kernel: Kernel, node: Node) -> bool:
    """Whether the thread of an element reads the node at the element's own place."""
    return node.size == kernel.space.size and kernel.space.whole in kernel.needs[node]


def vector_type(node: Node, count: int) -> str:
    return f"Vector<{memory_type(node.dtype)}, {count}>"
