"""The values of a segment as nodes of a graph: what each is computed from, and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.fusion.index_rules import Rule
from sardonyx.backends.fusion.narrow_types import NARROW
from sardonyx.backends.standard import Shape

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# The dtypes that generated kernels compute with.
DTYPES = frozenset(map(np.dtype, "?bhilBHILefd")) | {BFLOAT16}

# Those whose elements they read, move and write; of narrow types these are bytes.
CARRIED = DTYPES | NARROW

_numbers = count()


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """One array of a segment. Each node has a higher number than its operands."""

    shape: Shape
    dtype: np.dtype[Any]
    operands: tuple[Node, ...] = ()
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(eq=False, slots=True, kw_only=True)
class Argument(Node):
    """An argument of the segment."""

    position: int


@dataclass(eq=False, slots=True, kw_only=True)
class Constant(Node):
    """An array that is known now; a single element is written into the source of kernels."""

    value: np.ndarray[Any, Any]


@dataclass(eq=False, slots=True, kw_only=True)
class Elementwise(Node):
    """A function of the elements of broadcast operands, computed in the dtype `computed_in`."""

    function: str
    computed_in: np.dtype[Any]


@dataclass(eq=False, slots=True, kw_only=True)
class Iota(Node):
    """The index of each element along an axis."""

    axis: int


@dataclass(eq=False, slots=True, kw_only=True)
class Indexed(Node):
    """Elements of the first operand at other places; further operands hold computed indices."""

    rule: Rule


@dataclass(eq=False, slots=True, kw_only=True)
class Joined(Node):
    """The operands one after the other along an axis."""

    axis: int


@dataclass(eq=False, slots=True, kw_only=True)
class Reduction(Node):
    """Over the last axes of the operand, `length` elements for each of the result.

    `is_by_row` says that these elements are neighbours in the array that the op reduced.
    """

    function: str
    computed_in: np.dtype[Any]
    length: int
    is_by_row: bool


@dataclass(eq=False, slots=True, kw_only=True)
class Opaque(Node):
    """A call with whole arrays; its `Part`s are the arrays that it returns.

    `call` takes the backend and the operands' arrays, and returns an array for each of `results`.
    """

    call: Callable[..., Sequence[Any]]
    results: int
    # The backend's function that it calls, which may take options; "" for a step of several.
    name: str = ""


@dataclass(eq=False, slots=True, kw_only=True)
class Part(Node):
    """One result of an opaque call, its only operand."""

    index: int
    # Whether another call can give it another shape.
    is_unsized: bool = False


Leaf = (Argument, Part)


def is_leaf(node: Node) -> bool:
    """Whether an array of this node exists, whatever is fused."""
    return isinstance(node, Leaf) or (isinstance(node, Constant) and node.value.size != 1)


def sorted_nodes(results: Sequence[Node]) -> list[Node]:
    """Return the nodes on which the results depend, each after its operands."""
    reached = set(results)
    waiting = list(results)
    while waiting:
        for operand in waiting.pop().operands:
            if operand not in reached:
                reached.add(operand)
                waiting.append(operand)
    return sorted(reached, key=lambda node: node.number)
