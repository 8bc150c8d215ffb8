"""Kernels as sets of nodes, and the places at which each kernel needs each node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sardonyx.backends.fusion.expressions import SLOW
from sardonyx.backends.fusion.index_rules import Windows
from sardonyx.backends.fusion.index_text import Digits, IndexNames, broadcast_digits, digits_of
from sardonyx.backends.fusion.nodes import (
    Constant,
    Elementwise,
    Indexed,
    Iota,
    Joined,
    Node,
    Reduction,
)

# A kernel has at most so many nodes and arrays.
MOST_NODES, MOST_ARRAYS = 120, 48


@dataclass(frozen=True, slots=True)
class Space:
    """What a kernel's threads go over: elements, or rows of `columns` elements each."""

    size: int
    # Of kernels with reductions along rows.
    columns: int | None = None

    @property
    def rows(self) -> int:
        return self.size // (self.columns or 1)

    @property
    def whole(self) -> Digits:
        """The digits of an array that has an element for each of the space."""
        if self.columns is None:
            return _digits(("i", self.size))
        return _digits(("row", self.rows), ("c", self.columns))

    @property
    def by_row(self) -> Digits:
        return _digits(("row", self.rows))

    def digits(self, node: Node) -> Digits | None:
        """Return the digits at which the kernel computes each element of a node once."""
        if node.size == self.size:
            return self.whole
        return self.by_row if self.columns is not None and node.size == self.rows else None


def _digits(*digits: tuple[str, int]) -> Digits:
    return tuple([digit for digit in digits if digit[1] != 1])


class Names:
    """Short names of index expressions, for comparing them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def index(self, text: str) -> str:
        if text.isidentifier() or text.isdigit():
            return text
        return self._names.setdefault(text, f"i{len(self._names)}")


@dataclass(eq=False, slots=True)
class Kernel:
    """Nodes that one kernel computes; it writes those in `stores`, and reads its leaves."""

    space: Space
    stores: list[Node] = field(default_factory=list)
    inlined: list[Node] = field(default_factory=list)
    # Each node that is needed, and where.
    needs: dict[Node, set[Digits]] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    # How often about it computes an element of a node, if windows read it again and again.
    repeats: dict[Node, int] = field(default_factory=dict)

    def store(self, node: Node) -> None:
        digits = self.space.digits(node)
        assert digits is not None
        self.stores.append(node)
        self.needs.setdefault(node, set()).add(digits)

    def inline(self, node: Node) -> None:
        """Compute the node where it is needed, which needs its operands."""
        self.inlined.append(node)
        for digits in self.needs[node]:
            for operand, places in operand_places(node, digits, self.space, self.names):
                self.needs.setdefault(operand, set()).update(places)
        often = self.repeats.get(node, 1)
        if isinstance(node, Indexed) and isinstance(node.rule, Windows):
            often *= max(node.size // node.operands[0].size, 1)
        for operand in node.operands:
            self.repeats[operand] = max(self.repeats.get(operand, 1), often)

    def by_rows(self, reduction: Reduction) -> Kernel | None:
        """Return the kernel whose rows are those of a reduction, if it can have such rows."""
        columns = reduction.length
        space = Space(reduction.size * columns, columns)
        if self.space.columns is not None:
            return self if self.space == space else None
        if any(space.digits(node) is None for node in self.stores):
            return None
        changed = Kernel(space)
        for node in self.stores:
            changed.store(node)
        for node in sorted(self.inlined, key=lambda node: -node.number):
            changed.inline(node)
        return changed

    def replace_by(self, other: Kernel) -> None:
        self.space, self.stores, self.inlined = other.space, other.stores, other.inlined
        self.needs, self.names, self.repeats = other.needs, other.names, other.repeats

    @property
    def is_full(self) -> bool:
        if len(self.inlined) >= MOST_NODES:
            return True
        return len(self.needs) >= MOST_ARRAYS and len(self.leaves) >= MOST_ARRAYS

    @property
    def leaves(self) -> list[Node]:
        """The nodes that it reads from memory."""
        own = set(self.inlined)
        return [node for node in self.needs if node not in own and not is_literal(node)]


@dataclass(slots=True)
class _Needs:
    """Collects where a rule reads computed indices."""

    node: Node
    names: Names
    places: list[tuple[Node, Digits]] = field(default_factory=list)

    def index(self, text: str) -> str:
        return self.names.index(text)

    def element(self, operand: int, digits: Digits, size: int) -> str:
        node = self.node.operands[operand]
        self.places.append((node, digits))
        return self.names.index(f"element {node.number} {digits} {size}")


def operand_places(
    node: Node, digits: Digits, space: Space, names: Names
) -> Iterator[tuple[Node, Iterable[Digits]]]:
    """Yield each operand, and where the node's element at these digits needs it."""
    if isinstance(node, Elementwise):
        for operand in node.operands:
            yield operand, [broadcast_digits(digits, operand.shape, node.shape, names)]
    elif isinstance(node, Indexed):
        source, needs = node.operands[0], _Needs(node, names)
        yield source, [node.rule.digits(digits, node.shape, source.shape, needs)]
        for operand, places in needs.places:
            yield operand, [places]
    elif isinstance(node, Joined):
        own = digits_of(digits, node.shape, names)
        for operand, places in joined_places(node, own, names):
            yield operand, [places]
    elif isinstance(node, Reduction):
        column = "c" if is_row_of(node, digits, space) else f"k{node.number}"
        yield node.operands[0], [(*digits, (column, node.length))]


def joined_places(node: Joined, own: list[str], names: IndexNames) -> Iterator[tuple[Node, Digits]]:
    """Yield each part of a concatenation, and the place in it."""
    start = 0
    for operand in node.operands:
        places = list(own)
        if start:
            places[node.axis] = names.index(f"{own[node.axis]} - {start}")
        start += operand.shape[node.axis]
        pairs = zip(places, operand.shape, strict=True)
        yield operand, tuple([(text, size) for text, size in pairs if size != 1])


def is_row_of(node: Reduction, digits: Digits, space: Space) -> bool:
    """Whether the node reduces the row of the kernel that these digits name."""
    is_same = space.columns == node.length and space.rows == node.size
    return is_same and node.is_by_row and digits == space.by_row


def is_literal(node: Node) -> bool:
    """Whether the node is a number in the source."""
    return isinstance(node, Constant) and node.value.size == 1


def is_cheap(node: Node) -> bool:
    """Whether computing the node again costs less than reading it from memory."""
    if isinstance(node, (Indexed, Iota)):
        return True
    if not isinstance(node, Elementwise) or node.function in SLOW:
        return False
    return node.function == "astype" or node.size == 1 or all(map(is_literal, node.operands))


def is_slow(node: Node) -> bool:
    return isinstance(node, Elementwise) and node.function in SLOW
