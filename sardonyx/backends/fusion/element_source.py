"""The source of one element of a node, at given places, inside of a kernel's body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sardonyx.backends.fusion.c_types import literal, loaded, register_type
from sardonyx.backends.fusion.expressions import expression
from sardonyx.backends.fusion.index_text import Digits, broadcast_digits, digits_of, place_of
from sardonyx.backends.fusion.kernels import Kernel, is_literal, is_row_of, joined_places
from sardonyx.backends.fusion.nodes import (
    Constant,
    Elementwise,
    Indexed,
    Iota,
    Joined,
    Node,
    Reduction,
)
from sardonyx.backends.fusion.reductions import combined, finished, first_value
from sardonyx.backends.fusion.source_lines import Lines


@dataclass(eq=False, slots=True)
class Elements:
    """Writes the statements that compute elements of nodes."""

    kernel: Kernel
    # The name of the array that holds each node which the kernel reads.
    arrays: Mapping[Node, str]
    lines: Lines = field(default_factory=Lines)
    # Variables of the reductions along the kernel's rows.
    by_row: dict[Node, str] = field(default_factory=dict)
    # Elements at the thread's own place that were read together with their neighbours.
    near: dict[Node, str] = field(default_factory=dict)
    rows: Any = None

    def value(self, node: Node, digits: Digits) -> str:
        """Return a variable, or a literal, with the node's element at these digits."""
        if isinstance(node, Constant) and is_literal(node):
            return literal(node.value.reshape(()).item(), node.dtype)
        if isinstance(node, Reduction) and self._is_of_row(node, digits):
            return self.by_row[node]
        key = (node, digits)
        known = self.lines.find(key)
        if known is None and self.rows is not None:
            known = self.rows.kept_value(node, digits)
        if known is not None:
            return known
        name = self._computed(node, digits)
        if self.rows is not None:
            self.rows.keep(node, digits, name)
        return name

    def _is_of_row(self, node: Reduction, digits: Digits) -> bool:
        """Whether a variable holds this reduction of the kernel's row."""
        return node in self.by_row and is_row_of(node, digits, self.kernel.space)

    def _computed(self, node: Node, digits: Digits) -> str:
        key = (node, digits)
        kind = register_type(node.dtype)
        if node in self.arrays:
            return self.lines.define(key, kind, loaded(self._read(node, digits), node.dtype))
        if isinstance(node, Indexed):
            reader = _Reader(self, node)
            source = node.operands[0]
            return self.value(source, node.rule.digits(digits, node.shape, source.shape, reader))
        if isinstance(node, Iota):
            return self.lines.define(
                key, kind, digits_of(digits, node.shape, self.lines)[node.axis]
            )
        if isinstance(node, Joined):
            return self._joined(node, digits, kind)
        if isinstance(node, Reduction):
            return self._loop(node, digits, kind)
        assert isinstance(node, Elementwise)
        operands = [
            self.value(o, broadcast_digits(digits, o.shape, node.shape, self.lines))
            for o in node.operands
        ]
        return self.lines.define(key, kind, expression(node, operands))

    def _read(self, node: Node, digits: Digits) -> str:
        if node in self.near and digits == self.kernel.space.whole:
            return self.near[node]
        return f"{self.arrays[node]}[{place_of(digits, self.lines)}]"

    def _joined(self, node: Joined, digits: Digits, kind: str) -> str:
        """Only the part that holds the element is read."""
        own = digits_of(digits, node.shape, self.lines)
        name = self.lines.new_name()
        self.lines.add(f"{kind} {name};")
        start, opening = 0, "if"
        parts = list(joined_places(node, own, self.lines))
        for operand, places in parts:
            start += operand.shape[node.axis]
            is_last = start == node.shape[node.axis]
            condition = "else" if is_last else f"{opening} ({own[node.axis]} < {start})"
            with self.lines.block(condition):
                self.lines.add(f"{name} = {self.value(operand, places)};")
            opening = "else if"
        counters = self.lines.counters(" ".join(text for text, _ in digits))
        self.lines.note((node, digits), name, counters)
        return name

    def _loop(self, node: Reduction, digits: Digits, kind: str) -> str:
        """One thread reduces all elements, one after the other."""
        name, counter = self.lines.new_name(), self.lines.new_name()
        self.lines.add(f"{wide_type(node)} {name} = {first_value(node)};")
        heading = f"for (int {counter} = 0; {counter} < {node.length}; ++{counter})"
        with self.lines.block(heading, counter):
            operand = self.value(node.operands[0], (*digits, (counter, node.length)))
            self.lines.add(f"{name} = {combined(node, name, operand)};")
        counters = self.lines.counters(" ".join(text for text, _ in digits))
        self.lines.note(name, name, counters)
        return self.lines.define((node, digits), kind, finished(node, name))


def wide_type(node: Reduction) -> str:
    """Return the type in which elements are combined."""
    return register_type(node.computed_in)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads computed indices for a rule."""

    elements: Elements
    node: Node

    def index(self, text: str) -> str:
        return self.elements.lines.index(text)

    def element(self, operand: int, digits: Digits, size: int) -> str:
        """Indices below zero count from the end; those out of range become the nearest."""
        value = self.elements.value(self.node.operands[operand], digits)
        lines = self.elements.lines
        wide = lines.index(f"(index_t)max(min((long long){value}, {size - 1}LL), {-size}LL)")
        return lines.index(f"{wide} < 0 ? {wide} + {size} : {wide}")
