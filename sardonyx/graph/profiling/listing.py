"""Which steps the operations of a compiled program belong to, by its listing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?(\S+) = ")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.-]+)")


@dataclass(eq=False)
class Listing:
    """The operations of a program, with the scopes in which they were traced."""

    # By operation: its own scope, and the computations that it calls.
    operations: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    computations: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Listing:
        """Read the text of a compiled program."""
        listing = cls()
        inside: list[str] = []
        for line in text.splitlines():
            if (begin := _COMPUTATION.match(line)) is not None:
                inside = listing.computations.setdefault(begin[1], [])
            elif (instruction := _INSTRUCTION.match(line)) is not None:
                scope = _SCOPE.search(line)
                called = tuple(_CALLED.findall(line))
                listing.operations[instruction[1]] = (scope[1] if scope else "", called)
                inside.append(instruction[1])
        return listing

    def scopes(self, operation: str) -> Iterator[str]:
        """Yield the scopes of an operation, and of those that were fused into it."""
        own, called = self.operations.get(operation, ("", ()))
        if own:
            yield own
        for computation in called:
            for inner in self.computations.get(computation, ()):
                yield from self.scopes(inner)


def step_of(scope: str, numbers: Mapping[str, int]) -> int | None:
    """Return the number of the step in whose scope an operation was traced.

    The scope is a path such as `jit(graph)/encoder/layer.0/MatMul/dot_general`, of which the middle
    is the step's own name.
    """
    parts = scope.split("/")
    for begin in range(len(parts)):
        for end in range(len(parts) - 1, begin, -1):
            number = numbers.get("/".join(parts[begin:end]))
            if number is not None:
                return number
    return None


def by_step(
    seconds: Mapping[str, float], text: str, scopes: Sequence[str], weights: Sequence[float]
) -> list[float]:
    """Return the seconds of each step, from those of operations.

    Steps that were fused into one operation share it in proportion to their weights.
    """
    listing, numbers = Listing.of(text), {name: i for i, name in enumerate(scopes)}
    totals = [0.0] * len(scopes)
    for operation, each in seconds.items():
        found = {step_of(scope, numbers) for scope in listing.scopes(operation)}
        steps = [i for i in found if i is not None]
        whole = sum(weights[i] for i in steps)
        for i in steps:
            totals[i] += each * weights[i] / whole
    return totals
