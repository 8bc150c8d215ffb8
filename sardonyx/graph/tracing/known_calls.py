"""What nodes call, found once: most calls depend on neither the shapes nor the values of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.graph.ir import Node
from sardonyx.graph.standard.operators import Signature
from sardonyx.graph.tracing.binding import Argument, Bound
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.values.kinds import Device, Static, Value, Weight
from sardonyx.ops.definition import Arrays, Definition, Map, Need

# The results' dtypes according to the standard; None where it leaves them open.
DTypes: TypeAlias = tuple[np.dtype[Any] | None, ...]

# The calls of larger graphs would take too much memory.
MOST_NODES = 10_000

_ARRAYS = frozenset((Static, Device, Weight))


class KnownCall(NamedTuple):
    """What a node calls for inputs of some types."""

    call: OpCall
    definition: Definition
    schema: Signature | None


class KnownCalls:
    """The calls of a model's nodes so far, for all traces of it but the first.

    Most models are traced once, and calls take 0.7 kB a node.
    """

    def __init__(self) -> None:
        self._calls: dict[Any, KnownCall] = {}
        self._traces = 0

    def begin(self, nodes: int) -> bool:
        """Note that a trace begins; return whether it is to use the calls and to add to them."""
        self._traces += 1
        return self._traces > 1 and nodes <= MOST_NODES

    def of(self, node: Node, inputs: Sequence[Value]) -> KnownCall | None:
        """Return what the node calls for inputs of these types, if that is known."""
        return self._calls.get(_key(node, inputs))

    def noted(
        self,
        node: Node,
        inputs: Sequence[Value],
        bound: Bound,
        definition: Definition,
        schema: Signature | None,
        dtypes: DTypes,
    ) -> KnownCall | None:
        """Remember a call; None if other inputs of the same types may lead to another one."""
        if definition.walks or definition.draws or definition.beginning or node.subgraphs:
            return None
        arguments = [argument for argument in bound.arguments if argument.value is not None]
        if not all(map(_is_hole, arguments)):
            return None
        passed = [value for value in inputs if value is not None]
        if list(map(id, passed)) != [id(argument.value) for argument in arguments]:
            return None  # An attribute of old opsets is an input today.
        call = OpCall.of(definition, bound.arguments, bound.attributes, dtypes)
        known = self._calls[_key(node, inputs)] = KnownCall(call, definition, schema)
        return known

    def clear(self) -> None:
        """Forget all calls."""
        self._calls.clear()


def _key(node: Node, inputs: Sequence[Any]) -> Any:
    return node, *[value.dtype if type(value) in _ARRAYS else value is None for value in inputs]


def _is_hole(argument: Argument) -> bool:
    parameter, value = argument
    is_array = parameter.need is Need.ARRAY and parameter.type not in (Arrays, Map)
    return is_array and type(value) in _ARRAYS
