"""Divides a segment's nodes into kernels, from the results backwards.

A node is computed inside of the kernel that reads it if no other one does, or if it is cheap.
Otherwise a kernel writes it to memory: one that computes it anyway, or a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sardonyx.backends.fusion.kernels import (
    Kernel,
    Space,
    is_cheap,
    is_literal,
    is_row_of,
    is_slow,
)
from sardonyx.backends.fusion.nodes import (
    CARRIED,
    Indexed,
    Node,
    Opaque,
    Part,
    Reduction,
    is_leaf,
    sorted_nodes,
)

# In how many places one kernel computes a node: again and again, if that is cheap.
MOST_PLACES, MOST_CHEAP_PLACES = 4, 16
# Rows of so many elements are reduced by one thread each, where a kernel has no rows.
SHORT_LOOP = 8

Unit = Kernel | Node


@dataclass(eq=False, slots=True)
class Partition:
    """What runs: kernels, opaque calls and views, each after those that it reads."""

    units: list[Unit]
    results: tuple[Node, ...]


@dataclass(eq=False, slots=True)
class _Partitioner:
    results: Sequence[Node]
    kernels: list[Kernel] = field(default_factory=list)
    views: list[Node] = field(default_factory=list)
    opaque: list[Node] = field(default_factory=list)
    # Nodes whose arrays must exist, and the units that read an array.
    needed: set[Node] = field(default_factory=set)
    readers: dict[Node, set[Unit]] = field(default_factory=dict)
    # The units that run after a unit.
    later: dict[Unit, set[Unit]] = field(default_factory=dict)
    # How many nodes have an operand.
    uses: dict[Node, int] = field(default_factory=dict)

    def run(self) -> Partition:
        nodes = sorted_nodes(self.results)
        for node in nodes:
            for operand in node.operands:
                self.uses[operand] = self.uses.get(operand, 0) + 1
        self.needed.update(self.results)
        for node in reversed(nodes):
            self._place(node)
        return Partition(self._in_order(), tuple(self.results))

    def _place(self, node: Node) -> None:
        if isinstance(node, Opaque):
            self._place_opaque(node)
        elif is_leaf(node) or is_literal(node):
            if isinstance(node, Part):
                call = node.operands[0]
                self._run_before(call, self._users(node))
        elif node in self.needed and self._is_view(node):
            self._place_view(node)
        elif node in self.needed or not self._inlined(node):
            self._store(node)

    def _place_opaque(self, node: Opaque) -> None:
        self.opaque.append(node)
        for operand in node.operands:
            self._need(operand, node)

    def _need(self, node: Node, reader: Unit) -> None:
        self.needed.add(node)
        self.readers.setdefault(node, set()).add(reader)

    # -- views ------------------------------------------------------------------------------------

    def _is_view(self, node: Node) -> bool:
        """Whether an array that exists, or has to, holds the node's elements."""
        base, is_shared = node, False
        while isinstance(base, Indexed) and base.rule.is_view:
            base = base.operands[0]
            is_shared |= self.uses[base] > 1 or base in self.needed
        return base is not node and (is_leaf(base) or (is_shared and not is_literal(base)))

    def _place_view(self, node: Node) -> None:
        self.views.append(node)
        self._run_before(node, self._users(node))
        source = node.operands[0]
        self._need(source, node)

    # -- kernels ----------------------------------------------------------------------------------

    def _users(self, node: Node) -> set[Unit]:
        """Return the units that read the node."""
        kernels = {k for k in self.kernels if node in k.needs and node not in k.inlined}
        return kernels | self.readers.get(node, set())

    def _inlined(self, node: Node) -> bool:
        """Compute the node inside of the kernels that need it, if that is the better way."""
        kernels = [k for k in self.kernels if node in k.needs]
        if len(kernels) > 1 and not is_cheap(node):
            return False
        if any(kernel.is_full for kernel in kernels):
            return False
        if isinstance(node, Reduction):
            return self._reduced_inside(node, kernels[0])
        if is_slow(node) and any(kernel.repeats.get(node, 1) > 1 for kernel in kernels):
            return False
        most = MOST_CHEAP_PLACES if is_cheap(node) else 1 if is_slow(node) else MOST_PLACES
        if any(len(kernel.needs[node]) > most for kernel in kernels):
            return False
        for kernel in kernels:
            kernel.inline(node)
        return True

    def _reduced_inside(self, node: Reduction, kernel: Kernel) -> bool:
        rows = self._with_rows(node, kernel)
        if rows is not None:
            kernel.replace_by(rows)
        elif (node.is_by_row and node.length > SHORT_LOOP) or not _is_needed_once(node, kernel):
            return False
        kernel.inline(node)
        return True

    def _with_rows(self, node: Reduction, kernel: Kernel) -> Kernel | None:
        """Return the kernel with a reduction of each of its rows, if it needs just these."""
        if not node.is_by_row:
            return None
        rows = kernel.by_rows(node)
        if rows is None:
            return None
        places = rows.needs[node]
        return rows if all(is_row_of(node, digits, rows.space) for digits in places) else None

    def _store(self, node: Node) -> None:
        users = self._users(node)
        kernel = self._host(node, users) or self._own_kernel(node)
        users.discard(kernel)
        self._run_before(kernel, users)
        kernel.store(node)
        kernel.inline(node)

    def _own_kernel(self, node: Node) -> Kernel:
        space = Space(node.size)
        if isinstance(node, Reduction) and node.is_by_row:
            space = Space(node.size * node.length, node.length)
        kernel = Kernel(space)
        self.kernels.append(kernel)
        return kernel

    def _host(self, node: Node, users: set[Unit]) -> Kernel | None:
        """Return a kernel that computes each element of the node once anyway, if there is one."""
        for kernel in self.kernels:
            if node not in kernel.needs or kernel.is_full or node.dtype not in CARRIED:
                continue
            hosting: Kernel | None = kernel
            if isinstance(node, Reduction):
                hosting = self._with_rows(node, kernel)
            if hosting is None:
                continue
            if not _is_needed_once(node, hosting):
                continue
            if any(self._reaches(user, kernel) for user in users if user is not kernel):
                continue
            kernel.replace_by(hosting)
            return kernel
        return None

    # -- order ------------------------------------------------------------------------------------

    def _run_before(self, unit: Unit, users: set[Unit]) -> None:
        self.later.setdefault(unit, set()).update(users - {unit})

    def _reaches(self, start: Unit, end: Unit) -> bool:
        reached, waiting = {start}, [start]
        while waiting:
            unit = waiting.pop()
            if unit is end:
                return True
            for after in self.later.get(unit, ()):
                if after not in reached:
                    reached.add(after)
                    waiting.append(after)
        return False

    def _in_order(self) -> list[Unit]:
        """Return the units, each after those that it reads, and else in the ops' order."""
        units: list[Unit] = [*self.kernels, *self.views, *self.opaque]
        waits = dict.fromkeys(units, 0)
        for unit in units:
            for after in self.later.get(unit, ()):
                waits[after] += 1
        ready = {unit: _number(unit) for unit in units if not waits[unit]}
        ordered = []
        while ready:
            unit = min(ready, key=lambda one: ready[one])
            del ready[unit]
            ordered.append(unit)
            for after in self.later.get(unit, ()):
                waits[after] -= 1
                if not waits[after]:
                    ready[after] = _number(after)
        if len(ordered) != len(units):
            raise RuntimeError("kernels of a program wait for each other")
        return ordered


def _is_needed_once(node: Node, kernel: Kernel) -> bool:
    """Whether the kernel needs each element of the node in one thread, or in one row."""
    return kernel.needs[node] == {kernel.space.digits(node)}


def _number(unit: Unit) -> int:
    return max(node.number for node in unit.stores) if isinstance(unit, Kernel) else unit.number


def partition(results: Sequence[Node]) -> Partition:
    """Return the kernels, views and calls that compute these nodes."""
    return _Partitioner(results).run()
