"""One look over a whole model before anything runs: every fault it can know is told at load."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidModel, LimitExceeded, UnsupportedModel
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import AttributeReference, Function, FunctionKey, Node, Source
from sardonyx.graph.loading.custom_ops import definition_of
from sardonyx.graph.standard import schema
from sardonyx.graph.standard.bodies import has_body, operators_of_body
from sardonyx.graph.standard.type_flow import Flow
from sardonyx.graph.standard.types import dtype_of, type_name
from sardonyx.graph.tracing.binding import bind
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op

# Of each attribute of a function, as what it is read.
Uses: TypeAlias = dict[str, set[schema.AttrType]]

# How many operators one message names; of a real model these are all there are.
MOST_TOLD = 50


def audit(source: Source, *, strict: bool) -> None:
    """Raise what is wrong with `source`: unknown operators all at once, then each other fault."""
    _refuse_unsupported(source)
    callees_first = _callees_first(source)
    _refuse_expansion(source, callees_first)
    uses = _uses_of_attributes(source, callees_first)
    for node, opsets in all_nodes(source):
        known = _signature(node, opsets)
        called = source.function_of(node)
        if called is not None:
            _check_call(node, called, uses[_call_key(node)])
        elif known is not None:
            schema.check_node(node, known, opsets[node.domain])
            op = source.op_of(node)
            _check_constant(node, op, known, opsets[node.domain], strict=strict)
    Flow(source, source.opsets, strict=strict).graph(source.graph, ChainMap())
    for function in source.functions.values():
        # The types in there follow from those of a call.
        Flow(source, function.opsets, strict=False).nodes(function.nodes, ChainMap())


def _check_constant(
    node: Node, op: Op[Any] | None, known: schema.Signature, opset: int, *, strict: bool
) -> None:
    """Try a node whose result follows from its attributes alone."""
    given = node.attributes.values()
    if op is None or not op.at(opset).is_static or any(_is_reference(value) for value in given):
        return
    definition = definition_of(op, opset)
    try:
        bound = bind(definition, (), node.attributes, len(node.outputs), dtype_of)
        result = definition.function(HOST, **bound.attributes)
    except Exception as error:
        node_errors.raise_at_node(error, node, opset, (), HOST)
    if strict:
        schema.check_result(node, known, type_name(result.dtype), opset)


def _is_reference(value: object) -> bool:
    return isinstance(value, AttributeReference)


def all_nodes(source: Source) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Every node of the graph, its subgraphs and the functions, with the opsets in force there."""
    yield from ((node, source.opsets) for node in _nested(source.graph.nodes))
    for function in source.functions.values():
        yield from ((node, function.opsets) for node in _nested(function.nodes))


def _nested(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in node.subgraphs:
            yield from _nested(graph.nodes)


def _call_key(node: Node) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def _is_call(node: Node, source: Source) -> bool:
    return source.function_of(node) is not None


def _signature(node: Node, opsets: Mapping[str, int]) -> schema.Signature | None:
    opset = opsets.get(node.domain)
    return schema.signature(node.op_type, node.domain, opset) if opset else None


def _refuse_unsupported(source: Source) -> None:
    lacks: dict[str, list[Node]] = {}
    for node, opsets in all_nodes(source):
        is_known = _is_call(node, source) or (node.domain, node.op_type) in source.custom
        if not is_known and (reason := _why_unsupported(node, opsets)):
            lacks.setdefault(reason, []).append(node)
    if not lacks:
        return
    shown = "; ".join(
        f"{reason} ({_some_labels(nodes)})" for reason, nodes in islice(lacks.items(), MOST_TOLD)
    )
    if len(lacks) > MOST_TOLD:
        shown += f"; and {len(lacks) - MOST_TOLD} more"
    raise UnsupportedModel(
        f"The model uses {len(lacks)} operator{'s' * (len(lacks) > 1)} that cannot be run: "
        f"{shown}. Define them as functions of the model, bring them with ops=, or convert it to "
        "an opset that has them."
    )


def _some_labels(nodes: list[Node]) -> str:
    shown = ", ".join(node.label for node in nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"


def _why_unsupported(node: Node, opsets: Mapping[str, int]) -> str | None:
    opset = opsets.get(node.domain)
    if opset is None:
        if (node.domain, node.op_type) in OPS and not node.domain:
            return f"{node.operator}: the model imports no opset of ai.onnx"
        return f"{node.operator}: the model imports no opset of '{node.domain or 'ai.onnx'}'"
    known = schema.signature(node.op_type, node.domain, opset)
    if (node.domain, node.op_type) in OPS:
        if known is None and schema.newest_version(node.domain) is not None:
            since = schema.first_version(node.op_type, node.domain)
            return f"{node.operator} does not exist at opset {opset}, only from {since} on"
        return None
    if known is None or not has_body(node.op_type, node.domain, opset):
        return f"{node.operator} of opset {opset}"
    needs = _unsupported_in_body(node.op_type, node.domain, opset)
    return f"{node.operator} of opset {opset}, which needs {', '.join(needs)}" if needs else None


@cache
def _unsupported_in_body(op_type: str, domain: str, opset: int) -> tuple[str, ...]:
    """What is missing to expand an operator that has only the standard's own body."""
    lacks: list[str] = []
    for inner_domain, name in operators_of_body(op_type, domain, opset):
        if (inner_domain, name) in OPS:
            continue
        if has_body(name, inner_domain, opset):
            lacks += _unsupported_in_body(name, inner_domain, opset)
        else:
            lacks.append(name)
    return tuple(dict.fromkeys(lacks))


def _callees_first(source: Source) -> list[FunctionKey]:
    """The functions, each after those it calls; recursion and long chains are refused.

    The walk is no recursion of our own, since a hostile chain may be thousands long.
    """
    ordered: list[FunctionKey] = []
    depths: dict[FunctionKey, int] = {}
    for start in source.functions:
        stack: list[tuple[FunctionKey, Iterator[FunctionKey]]] = []
        active: set[FunctionKey] = set()
        if start not in depths:
            stack.append((start, _calls(source, source.functions[start])))
            active.add(start)
        while stack:
            key, calls = stack[-1]
            depths.setdefault(key, 1)
            callee = next(calls, None)
            if callee is None:
                stack.pop()
                active.discard(key)
                ordered.append(key)
                if stack:
                    depths[stack[-1][0]] = max(depths[stack[-1][0]], depths[key] + 1)
            elif callee in active:
                raise InvalidModel(f"Function '{callee[1]}' calls itself; ONNX has no recursion.")
            elif callee in depths:
                depths[key] = max(depths[key], depths[callee] + 1)
            else:
                active.add(callee)
                stack.append((callee, _calls(source, source.functions[callee])))
    most = source.limits.function_depth
    if depths and max(depths.values()) > most:
        raise LimitExceeded(
            f"Functions call functions {max(depths.values())} deep; at most {most} are allowed. "
            "Inline them with onnx.inliner, or pass limits=sardonyx.Limits(function_depth=...)."
        )
    return ordered


def _refuse_expansion(source: Source, callees_first: list[FunctionKey]) -> None:
    """Count the nodes there would be with every function inlined, which is how they are traced."""
    sizes: dict[FunctionKey, int] = {}

    def size(nodes: tuple[Node, ...]) -> int:
        called = Counter(_call_key(node) for node in _nested(nodes))
        return sum(count * sizes.get(key, 1) for key, count in called.items())

    for key in callees_first:
        sizes[key] = size(source.functions[key].nodes)
    total = size(source.graph.nodes)
    if sizes and total > source.limits.nodes:
        raise LimitExceeded(
            f"With its functions inlined the model has {total:,} nodes; at most "
            f"{source.limits.nodes:,} are allowed. Call functions fewer times, or pass "
            "limits=sardonyx.Limits(nodes=...)."
        )


def _uses_of_attributes(
    source: Source, callees_first: list[FunctionKey]
) -> Mapping[FunctionKey, Uses]:
    """Of each function the types as which its nodes, and those they call, read its attributes."""
    uses: dict[FunctionKey, Uses] = {}
    for key in callees_first:
        function = source.functions[key]
        of_function: Uses = {}
        for node in _nested(function.nodes):
            for name, value in node.attributes.items():
                if isinstance(value, AttributeReference):
                    read_as = _types_of_attribute(node, name, source, function.opsets, uses)
                    of_function.setdefault(value.name, set()).update(read_as)
        uses[key] = of_function
        where = f"the function '{function.name}'"
        _check_values(where, function.defaults, of_function)
    return uses


def _types_of_attribute(
    node: Node,
    name: str,
    source: Source,
    opsets: Mapping[str, int],
    uses: Mapping[FunctionKey, Uses],
) -> set[schema.AttrType]:
    if _is_call(node, source):
        return uses[_call_key(node)].get(name, set())
    known = _signature(node, opsets)
    return {known.attributes[name]} if known and name in known.attributes else set()


def _check_values(where: str, values: Mapping[str, Any], uses: Uses) -> None:
    """Refuse values of a function's attributes that its nodes cannot read."""
    for name, value in values.items():
        if value is not None:
            for kind in uses.get(name, ()):
                schema.check_attribute(where, name, value, kind)


def _check_call(node: Node, function: Function, uses: Uses) -> None:
    """Refuse what a call gives or takes beyond what the function has."""
    where = f"{node.label[0].upper()}{node.label[1:]} ({node.operator})"
    sides = (("inputs", node.inputs, function.inputs), ("outputs", node.outputs, function.outputs))
    for what, given, known in sides:
        if len(given) > len(known):
            raise InvalidModel(
                f"{where} calls a function of the model with {len(given)} {what}; it has "
                f"{len(known)}: {', '.join(known) or 'none'}."
            )
    if unknown := [name for name in node.attributes if name not in function.defaults]:
        raise InvalidModel(
            f"{where} gives the attribute '{unknown[0]}' to a function of the model that has "
            f"{', '.join(map(str, function.defaults)) or 'none'}."
        )
    _check_values(where, node.attributes, uses)


def _calls(source: Source, function: Function) -> Iterator[FunctionKey]:
    return (_call_key(node) for node in _nested(function.nodes) if _is_call(node, source))
