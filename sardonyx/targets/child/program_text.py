"""Reads optimised programs of XLA, which it writes as text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^  (?:ROOT )?%?[\w.\-]+ = (?P<rest>.*)$")
_OPERATION = re.compile(r" (?P<name>[a-z][a-z0-9\-]*)\(")
_ARRAY = re.compile(r"\b(?P<type>pred|bf16|token|[sufc]\d+[a-z0-9]*)\[(?P<sizes>[0-9,]*)\]")
_BODY = re.compile(r"\bbody=%?([\w.\-]+)")
_CALLED = re.compile(r"\b(?:to_apply|body|condition|calls|called_computations)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its results' types as text, its operation, and everything after that."""

    types: str
    operation: str
    rest: str

    @property
    def arrays(self) -> list[tuple[str, tuple[int, ...]]]:
        """The type and the shape of each result."""
        return arrays_of(self.types)

    @property
    def called(self) -> list[str]:
        """The names of the computations that it calls."""
        names = _CALLED.findall(self.rest)
        for several in _BRANCHES.findall(self.rest):
            names += [name.strip().lstrip("%") for name in several.split(",")]
        return names


@dataclass(frozen=True)
class ProgramText:
    """The computations of a program, by name."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str

    @classmethod
    def of(cls, text: str) -> ProgramText:
        """Parse what `Compiled.as_text` returns."""
        computations: dict[str, tuple[Instruction, ...]] = {}
        entry, name, found = "", "", list[Instruction]()
        for line in text.splitlines():
            head = _HEAD.match(line)
            if head is not None:
                name, found = head["name"], []
                entry = name if head["entry"] else entry
            elif line == "}":
                computations[name] = tuple(found)
            elif (instruction := _instruction(line)) is not None:
                found.append(instruction)
        return cls(computations, entry)

    @cached_property
    def times(self) -> Mapping[str, int]:
        """How often a call runs each computation; a loop of unknown length counts once."""
        counts: Counter[str] = Counter({self.entry: 1})
        # A computation stands behind those that it calls.
        for name in reversed(self.computations):
            for instruction in self.computations[name]:
                trips = _TRIPS.search(instruction.rest)
                body = _BODY.search(instruction.rest)
                for other in instruction.called:
                    repeats = int(trips[1]) if trips and body and body[1] == other else 1
                    counts[other] += counts[name] * repeats
        return counts

    def instructions(self) -> Iterator[tuple[str, Instruction]]:
        """Yield all instructions, each with the name of its computation."""
        for name, instructions in self.computations.items():
            for instruction in instructions:
                yield name, instruction

    @cached_property
    def launching(self) -> frozenset[str]:
        """The computations whose instructions are kernels: the entry, and those that control runs.

        Those of a fusion, a reduction or a sort are parts of one kernel.
        """
        found, waiting = set[str](), [self.entry]
        while waiting:
            name = waiting.pop()
            if name in found or name not in self.computations:
                continue
            found.add(name)
            for instruction in self.computations[name]:
                if instruction.operation in ("while", "conditional", "call", "async-start"):
                    waiting += instruction.called
        return frozenset(found)


def _instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    rest = match["rest"]
    end = _end_of_types(rest)
    operation = _OPERATION.match(rest, end)
    return operation and Instruction(rest[:end], operation["name"], rest[operation.end() :])


def _end_of_types(text: str) -> int:
    """Return where the type ends: a tuple has blanks inside of its parentheses."""
    depth = 0
    for place, character in enumerate(text):
        if character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
        elif character == " " and not depth:
            return place
    return len(text)


def arrays_of(types: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the type and the shape of each array that a text names.

    >>> arrays_of("(bf16[2,8]{1,0}, u8[0]{0})")
    [('bf16', (2, 8)), ('u8', (0,))]
    """
    return [
        (match["type"], tuple(map(int, filter(None, match["sizes"].split(",")))))
        for match in _ARRAY.finditer(types)
    ]


def nbytes(type_name: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of an array without padding.

    >>> nbytes("bf16", (8, 128)), nbytes("s4", (3,))
    (2048, 2)
    """
    if type_name == "token":
        return 0
    bits = _BITS.search(type_name)
    return math.ceil(math.prod(shape) * (int(bits[0]) if bits else 8) / 8)
