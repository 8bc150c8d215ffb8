"""Kernels with reductions along rows: threads share a row, and go over it once per phase."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from sardonyx.backends.fusion.c_types import register_type, stored
from sardonyx.backends.fusion.element_source import Elements, wide_type
from sardonyx.backends.fusion.index_text import Digits, place_of
from sardonyx.backends.fusion.kernels import Kernel, is_row_of
from sardonyx.backends.fusion.nodes import Node, Reduction
from sardonyx.backends.fusion.reductions import combined, finished, first_value

WARP = 32
MOST_THREADS = 1024
# A thread keeps at most so many elements of a row, and registers for them in all.
MOST_ELEMENTS, MOST_REGISTERS = 8, 64
# Rows up to this length have one thread each.
SHORTEST_SHARED = 5

Key = tuple[Node, Digits]


class Rows:
    """Writes the body of such a kernel.

    It is written twice: the first time finds which elements a later phase computes again. The
    second time each thread keeps these in registers, if they fit.
    """

    def __init__(
        self, kernel: Kernel, arrays: Mapping[Node, str], results: Mapping[Node, str]
    ) -> None:
        self.kernel, self.arrays, self.results = kernel, arrays, results
        assert kernel.space.columns is not None
        self.columns = kernel.space.columns
        self.sharing = _threads_for(self.columns)
        self.per_block = max(128 // self.sharing, 1) if self.sharing <= WARP else 1
        self.threads = self.sharing * self.per_block
        self.blocks = -(-kernel.space.rows // self.per_block)
        self.each = -(-self.columns // self.sharing)
        self._is_first = True
        self._again: dict[Key, str] = {}
        self._arrays_kept: dict[Key, str] = {}

    def body(self) -> str:
        self._write()
        self._is_first = False
        self._choose_kept()
        return self._write()

    # -- what is kept -----------------------------------------------------------------------------

    def _choose_kept(self) -> None:
        registers = MOST_REGISTERS
        if self.each > MOST_ELEMENTS or self.sharing == 1:
            return
        for key, kind in self._again.items():
            needed = self.each * (2 if kind in ("double", "long long") else 1)
            if needed <= registers:
                registers -= needed
                self._arrays_kept[key] = f"kept{len(self._arrays_kept)}"

    def kept_value(self, node: Node, digits: Digits) -> str | None:
        """Return what an earlier phase kept, or note that it should be kept."""
        key = (node, digits)
        if not self._in_columns(digits):
            return None
        if self._is_first and key in self._earlier:
            self._again.setdefault(key, register_type(node.dtype))
            return "0"
        if key in self._kept_so_far:
            lines, kind = self._elements.lines, register_type(node.dtype)
            return lines.define(key, kind, f"{self._arrays_kept[key]}[j]")
        return None

    def keep(self, node: Node, digits: Digits, name: str) -> None:
        """Note that this phase computed an element, and keep it if a later one needs it."""
        key = (node, digits)
        if not self._in_columns(digits):
            return
        self._now.add(key)
        if key in self._arrays_kept and key not in self._kept_now:
            self._kept_now.add(key)
            self._elements.lines.add(f"{self._arrays_kept[key]}[j] = {name};")

    def _in_columns(self, digits: Digits) -> bool:
        lines = self._elements.lines
        is_top = len(lines.blocks) == 2 and "c" in lines.blocks[1].counters
        return is_top and "c" in lines.counters(" ".join(text for text, _ in digits))

    # -- the text ---------------------------------------------------------------------------------

    def _write(self) -> str:
        elements = self._elements = Elements(self.kernel, self.arrays, rows=self)
        self._earlier: set[Key] = set()
        self._kept_so_far: set[Key] = set()
        lines = elements.lines
        self._write_heading()
        for key, name in self._arrays_kept.items():
            lines.add(f"{register_type(key[0].dtype)} {name}[{self.each}];")
        for phase in self._phases():
            self._write_phase(phase)
        self._write_results()
        return lines.text

    def _write_heading(self) -> None:
        lines, rows = self._elements.lines, self.kernel.space.rows
        if self.sharing == 1:
            lines.add("const index_t row = (index_t)blockIdx.x * blockDim.x + threadIdx.x;")
        elif self.per_block == 1:
            lines.add("const int t = threadIdx.x;")
            lines.add("const index_t row = blockIdx.x;")
        else:
            lines.add(f"const int t = threadIdx.x % {WARP};")
            start = f"(index_t)blockIdx.x * {self.per_block}"
            lines.add(f"const index_t row = {start} + threadIdx.x / {WARP};")
        if self.per_block > 1:
            lines.add(f"if (row >= {rows}) return;")

    def _columns(self) -> str:
        """Return the heading of a loop over a thread's part of the row."""
        if self.sharing == 1:
            return f"for (int c = 0; c < {self.columns}; ++c)"
        if not self._arrays_kept:
            return f"for (int c = t; c < {self.columns}; c += {self.sharing})"
        each = f"for (int j = 0; j < {self.each}; ++j)"
        part = f"if (const int c = t + j * {self.sharing}; c < {self.columns})"
        return f"#pragma unroll\n    {each} {part}"

    def _loop(self) -> AbstractContextManager[object]:
        self._now: set[Key] = set()
        self._kept_now: set[Key] = set()
        return self._elements.lines.block(self._columns(), "c", "j", lets_out=True)

    def _end_loop(self) -> None:
        self._earlier |= self._now
        self._kept_so_far |= self._kept_now

    def _phases(self) -> list[list[Reduction]]:
        """Return the reductions along rows; those of one phase need none of its others."""
        depth: dict[Node, int] = {}
        phases: list[list[Reduction]] = []
        for node in sorted(self.kernel.inlined, key=lambda node: node.number):
            before = max((depth.get(operand, 0) for operand in node.operands), default=0)
            if isinstance(node, Reduction) and self._is_by_row(node):
                if before == len(phases):
                    phases.append([])
                phases[before].append(node)
                before += 1
            depth[node] = before
        return phases

    def _is_by_row(self, node: Reduction) -> bool:
        space = self.kernel.space
        return all(is_row_of(node, digits, space) for digits in self.kernel.needs[node])

    def _write_phase(self, phase: list[Reduction]) -> None:
        elements, lines = self._elements, self._elements.lines
        totals = {node: lines.new_name() for node in phase}
        for node, total in totals.items():
            lines.add(f"{wide_type(node)} {total} = {first_value(node)};")
        with self._loop():
            for node, total in totals.items():
                digits = (*self.kernel.space.by_row, ("c", self.columns))
                value = elements.value(node.operands[0], digits)
                lines.add(f"{total} = {combined(node, total, value)};")
        self._end_loop()
        for node, total in totals.items():
            self._share(node, total)
            kind = register_type(node.dtype)
            elements.by_row[node] = lines.define((node, "row"), kind, finished(node, total))

    def _share(self, node: Reduction, total: str) -> None:
        """Combine the totals of the threads of a row, so that each of them has the whole."""
        if self.sharing == 1:
            return
        lines, kind = self._elements.lines, wide_type(node)
        other = "other"
        shuffled = f"__shfl_xor_sync(0xffffffffu, {total}, step)"
        if kind in ("bool", "signed char", "unsigned char", "short", "unsigned short"):
            shuffled = f"({kind})__shfl_xor_sync(0xffffffffu, (int){total}, step)"
        with lines.block("for (int step = 16; step > 0; step /= 2)"):
            lines.add(f"const {kind} {other} = {shuffled};")
            lines.add(f"{total} = {combined(node, total, other)};")
        if self.sharing == WARP:
            return
        warps, shared = self.sharing // WARP, f"shared_{total}"
        lines.add(f"__shared__ {kind} {shared}[{warps}];")
        lines.add(f"if (t % {WARP} == 0) {shared}[t / {WARP}] = {total};")
        lines.add("__syncthreads();")
        lines.add(f"{total} = {shared}[0];")
        with lines.block(f"for (int warp = 1; warp < {warps}; ++warp)"):
            lines.add(f"{total} = {combined(node, total, f'{shared}[warp]')};")

    def _write_results(self) -> None:
        """Write whole rows in one more loop, and one number per row by its first thread."""
        elements, lines, space = self._elements, self._elements.lines, self.kernel.space
        whole = {n: r for n, r in self.results.items() if n.size == space.size}
        if whole:
            with self._loop():
                for node, result in whole.items():
                    value = elements.value(node, space.whole)
                    place = place_of(space.whole, lines)
                    lines.add(f"{result}[{place}] = {stored(value, node.dtype)};")
            self._end_loop()
        for node, result in self.results.items():
            if node not in whole:
                value = elements.value(node, space.by_row)
                place = place_of(space.by_row, lines)
                guard = "" if self.sharing == 1 else "if (t == 0) "
                lines.add(f"{guard}{result}[{place}] = {stored(value, node.dtype)};")


def _threads_for(columns: int) -> int:
    if columns < SHORTEST_SHARED:
        return 1
    threads = WARP
    while threads < MOST_THREADS and threads * 4 < columns:
        threads *= 2
    return threads
