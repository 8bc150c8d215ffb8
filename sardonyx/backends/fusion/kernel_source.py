"""The CUDA source of a kernel, how it is launched, and the arrays that it takes."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.backends.fusion.c_types import memory_type, stored
from sardonyx.backends.fusion.element_source import Elements
from sardonyx.backends.fusion.helpers import with_helpers
from sardonyx.backends.fusion.index_text import place_of
from sardonyx.backends.fusion.kernels import Kernel
from sardonyx.backends.fusion.nodes import Elementwise, Node, Reduction
from sardonyx.backends.fusion.row_source import Rows
from sardonyx.backends.fusion.vectors import BYTES, elements_per_thread, reads_in_order, vector_type

# Indices that can be greater are of 64 bits.
LARGEST_INT = 2**31 - 2**16
THREADS = 256


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel, with its arguments in order: the arrays that it reads, then those it writes."""

    name: str
    source: str
    blocks: int
    threads: int
    reads: tuple[Node, ...]
    writes: tuple[Node, ...]
    # The bytes to which arrays have to be aligned; 1 for those of their elements.
    alignment: int


def source_of(kernel: Kernel) -> KernelSource:
    """Return the source of a kernel; kernels that do the same have the same source."""
    reads, writes = tuple(kernel.leaves), tuple(kernel.stores)
    arrays = {node: f"a{i}" for i, node in enumerate(reads)}
    results = {node: f"r{i}" for i, node in enumerate(writes)}
    if kernel.space.columns is None:
        body, blocks, threads = _by_element(kernel, arrays, results)
    else:
        rows = Rows(kernel, arrays, results)
        body, blocks, threads = rows.body(), rows.blocks, rows.threads
    name = f"fused_{_title(kernel)}"
    parameters = [f"const {memory_type(n.dtype)}* __restrict__ {a}" for n, a in arrays.items()]
    parameters += [f"{memory_type(n.dtype)}* __restrict__ {r}" for n, r in results.items()]
    joined = ",\n    ".join(parameters)
    index = "int" if _largest(kernel) < LARGEST_INT else "long long"
    text = f"typedef {index} index_t;\n\n"
    # With these bounds the compiler leaves each thread the registers that a launch needs.
    text += f'extern "C" __launch_bounds__({threads}) __global__ void {name}('
    text += f"\n    {joined}) {{\n{body}\n}}\n"
    alignment = BYTES if "Vector<" in body else 1
    return KernelSource(name, with_helpers(text), blocks, threads, reads, writes, alignment)


def _by_element(
    kernel: Kernel, arrays: dict[Node, str], results: dict[Node, str]
) -> tuple[str, int, int]:
    """One thread computes one element of each result, or a few that lie side by side."""
    each = elements_per_thread(kernel)
    elements = Elements(kernel, arrays)
    lines = elements.lines
    threads = kernel.space.size // each
    lines.add("const index_t thread = (index_t)blockIdx.x * blockDim.x + threadIdx.x;")
    lines.add(f"if (thread >= {threads}) return;")
    if each == 1:
        lines.add("const index_t i = thread;")
        _write_element(elements, results)
    else:
        _write_vectors(elements, results, each)
    return lines.text, -(-threads // THREADS), THREADS


def _write_vectors(elements: Elements, results: dict[Node, str], each: int) -> None:
    """Read neighbours at once, compute them one by one, and write them at once."""
    kernel, lines = elements.kernel, elements.lines
    for node, array in elements.arrays.items():
        if reads_in_order(kernel, node):
            kind, name = vector_type(node, each), f"{array}_near"
            lines.add(f"const {kind} {name} = ((const {kind}*){array})[thread];")
            elements.near[node] = f"{name}.element[k]"
    near = {node: f"{result}_near" for node, result in results.items()}
    for node, name in near.items():
        lines.add(f"{vector_type(node, each)} {name};")
    heading = f"#pragma unroll\n    for (int k = 0; k < {each}; ++k)"
    with lines.block(heading, "i", "k", lets_out=True):
        lines.add(f"const index_t i = thread * {each} + k;")
        for node, name in near.items():
            value = elements.value(node, kernel.space.whole)
            lines.add(f"{name}.element[k] = {stored(value, node.dtype)};")
    for node, result in results.items():
        lines.add(f"(({vector_type(node, each)}*){result})[thread] = {near[node]};")


def _write_element(elements: Elements, results: dict[Node, str]) -> None:
    kernel, lines = elements.kernel, elements.lines
    for node, result in results.items():
        value = elements.value(node, kernel.space.whole)
        place = place_of(kernel.space.whole, lines)
        lines.add(f"{result}[{place}] = {stored(value, node.dtype)};")


def _largest(kernel: Kernel) -> int:
    sizes = [node.size * getattr(node, "length", 1) for node in kernel.needs]
    return max(kernel.space.size, *sizes)


def _title(kernel: Kernel) -> str:
    """Name the kernel by a few of its functions, the rare ones first."""
    functions = [
        node.function
        for node in reversed(kernel.inlined)
        if isinstance(node, (Elementwise, Reduction)) and node.function not in _PLAIN
    ]
    named = list(dict.fromkeys(functions))[:4]
    return "_".join(named) if named else "copy" if not kernel.inlined else "elements"


_PLAIN = frozenset({"add", "astype", "equal", "isfinite", "multiply", "subtract", "where"})
