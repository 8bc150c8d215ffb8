"""The lines of a kernel's body: variables that are defined once, in the outermost block."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINITION = re.compile(r"\s*const [a-z_ ]+ (\w+) = ")


@dataclass(eq=False, slots=True)
class Block:
    """Lines between braces."""

    # The variables that the block's loop counts, if it is a loop.
    counters: frozenset[str] = frozenset()
    # Whether what does not depend on them may be computed before the block.
    lets_out: bool = False
    lines: list[str] = field(default_factory=list)
    names: dict[Hashable, str] = field(default_factory=dict)


class Lines:
    """Statements in nested blocks."""

    def __init__(self) -> None:
        self.blocks = [Block()]
        self._count = 0
        # The counters on which each variable depends.
        self._counters: dict[str, frozenset[str]] = {}

    def index(self, text: str) -> str:
        """Return the name of a variable that holds an index expression."""
        if text.isidentifier() or text.isdigit():
            return text
        return self.define(text, "index_t", text)

    def define(self, key: Hashable, kind: str, text: str) -> str:
        """Return the name of a variable of this value, defined where the value is known."""
        known = self.find(key)
        if known is not None:
            return known
        counters = self.counters(text)
        depth = len(self.blocks) - 1
        while self.blocks[depth].lets_out and not counters & self.blocks[depth].counters:
            depth -= 1
        name = self.new_name()
        self._counters[name] = counters
        self.blocks[depth].names[key] = name
        self.blocks[depth].lines.append(f"const {kind} {name} = {text};")
        return name

    def find(self, key: Hashable) -> str | None:
        for block in self.blocks:
            if key in block.names:
                return block.names[key]
        return None

    def note(self, key: Hashable, name: str, counters: frozenset[str]) -> None:
        """Let a variable that was written otherwise be found."""
        self.blocks[-1].names[key] = name
        self._counters[name] = counters

    def counters(self, text: str) -> frozenset[str]:
        """Return the counters of open blocks on which an expression depends."""
        names = _NAME.findall(text)
        own = [block.counters.intersection(names) for block in self.blocks]
        inner = [self._counters.get(name, frozenset()) for name in names]
        return frozenset[str]().union(*own, *inner)

    def new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def add(self, line: str) -> None:
        self.blocks[-1].lines.append(line)

    @contextmanager
    def block(self, opening: str, *counters: str, lets_out: bool = False) -> Iterator[Block]:
        """Write a block; what is computed before it goes in front of it."""
        inner = Block(frozenset(counters), lets_out)
        self.blocks.append(inner)
        yield inner
        self.blocks.pop()
        self.add(f"{opening} {{")
        self.blocks[-1].lines += [f"    {line}" for line in inner.lines]
        self.add("}")

    @property
    def text(self) -> str:
        return "\n".join(f"    {line}" for line in _without_unused(self.blocks[0].lines))


def _without_unused(lines: list[str]) -> list[str]:
    """Return the lines without the variables that no later line reads."""
    read: set[str] = set()
    used = []
    for line in reversed(lines):
        defined = _DEFINITION.match(line)
        if defined is None or defined[1] in read:
            read.update(_NAME.findall(line[defined.end() :] if defined else line))
            used.append(line)
    return used[::-1]
