"""Checks of a whole model at load, so that as many errors as possible are raised before a call."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, TypeAlias

from sardonyx.backends.numpy import HOST
from sardonyx.deviations import OPERATOR_BESIDE, Departure
from sardonyx.errors import InvalidModel, LimitExceeded, UnsupportedModel
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import (
    AttributeReference,
    Function,
    FunctionKey,
    Node,
    Source,
    every_node,
)
from sardonyx.graph.loading.custom_ops import definition_of
from sardonyx.graph.standard import operators, schema
from sardonyx.graph.standard.bodies import has_body, operators_of_body
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.type_flow import Flow
from sardonyx.graph.standard.types import dtype_of, type_name
from sardonyx.graph.tracing.binding import bind
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from sardonyx.ops.microsoft.default_domain import BESIDE_THE_STANDARD
from sardonyx.ops.microsoft.left_out import LEFT_OUT

# For each attribute of a function, the types that its nodes require of it.
Uses: TypeAlias = dict[str, set[operators.AttrType]]

# How many operators one message names; of a real model these are all there are.
MOST_LISTED = 50


def audit(source: Source, *, strict: bool) -> None:
    """Refuse a model that cannot run: all unsupported operators at once, else the first error."""
    _refuse_unsupported(source)
    if source.to_the_letter:
        _refuse_departures(source)
    callees_first = _callees_first(source)
    _refuse_expansion(source, callees_first)
    uses = _uses_of_attributes(source, callees_first)
    for node, opsets in all_nodes(source):
        signature = _signature(node, opsets)
        function = source.function_of(node)
        if function is not None:
            _check_call(node, function, uses[node.function_key])
        elif signature is not None:
            schema.check_node(node, signature, opsets[node.domain])
            op = source.op_of(node)
            _check_constant(node, op, signature, opsets[node.domain], strict=strict)
    Flow(source, source.opsets, strict=strict).graph(source.graph, ChainMap())
    for function in source.functions.values():
        # The types inside a function depend on each call, so they are not checked here.
        Flow(source, function.opsets, strict=False).nodes(function.nodes, ChainMap())


def _refuse_departures(source: Source) -> None:
    """Refuse a file that deviates from the standard."""
    departures = list(source.departures)
    for node, opsets in all_nodes(source):
        version = opsets.get(node.domain)
        if version is not None and _is_beside_the_standard(node, version, source):
            where = f"{node.title(version)} is not in the opset"
            departures.append(Departure(OPERATOR_BESIDE, where))
    for departure in departures:
        raise InvalidModel(f"{departure.refusal}.")


def _is_beside_the_standard(node: Node, version: int, source: Source) -> bool:
    is_own = not _is_call(node, source) and (node.domain, node.op_type) not in source.custom
    is_standard = operators.newest_version(node.domain) is not None
    return (
        is_own and is_standard and operators.signature(node.op_type, node.domain, version) is None
    )


def _check_constant(
    node: Node, op: Op[Any] | None, signature: operators.Signature, opset: int, *, strict: bool
) -> None:
    """Compute a node whose result depends only on its attributes, so that its errors appear."""
    values = node.attributes.values()
    if (
        op is None
        or not op.at(opset).is_static
        or any(isinstance(v, AttributeReference) for v in values)
    ):
        return
    definition = definition_of(op, opset)
    try:
        bound = bind(definition, (), node.attributes, len(node.outputs), dtype_of)
        result = definition.function(HOST, **bound.attributes)
    except Exception as error:
        node_errors.raise_at_node(error, node, opset, (), HOST)
    if strict:
        schema.check_result(node, signature, type_name(result.dtype), opset)


def all_nodes(source: Source) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Yield every node of the graph, its subgraphs and the functions, with its opsets."""
    yield from ((node, source.opsets) for node in every_node(source.graph.nodes))
    for function in source.functions.values():
        yield from ((node, function.opsets) for node in every_node(function.nodes))


def _is_call(node: Node, source: Source) -> bool:
    return source.function_of(node) is not None


def _signature(node: Node, opsets: Mapping[str, int]) -> operators.Signature | None:
    opset = opsets.get(node.domain)
    return signature_of(node.op_type, node.domain, opset) if opset else None


def unsupported(source: Source) -> dict[str, list[Node]]:
    """Return the nodes of operators that sardonyx does not have, by operator and reason."""
    missing: dict[str, list[Node]] = {}
    # The same for all nodes of an operator.
    reasons: dict[Any, str | None] = {}
    for node, opsets in all_nodes(source):
        key = *node.function_key, opsets.get(node.domain)
        if key not in reasons:
            is_defined = _is_call(node, source) or (node.domain, node.op_type) in source.custom
            reasons[key] = None if is_defined else _why_unsupported(node, opsets)
        if reason := reasons[key]:
            missing.setdefault(reason, []).append(node)
    return missing


def _refuse_unsupported(source: Source) -> None:
    missing = unsupported(source)
    if not missing:
        return
    shown = "; ".join(
        f"{reason} ({_some_labels(nodes)})"
        for reason, nodes in islice(missing.items(), MOST_LISTED)
    )
    if len(missing) > MOST_LISTED:
        shown += f"; and {len(missing) - MOST_LISTED} more"
    raise UnsupportedModel(
        f"The model uses {len(missing)} unsupported operator{'s' * (len(missing) > 1)}: {shown}. "
        "Define them as functions of the model, pass them as ops=, or convert the model to an "
        "opset that has them."
    )


def _some_labels(nodes: list[Node]) -> str:
    shown = ", ".join(node.label for node in nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"


def _why_unsupported(node: Node, opsets: Mapping[str, int]) -> str | None:
    opset = opsets.get(node.domain)
    if opset is None:
        return f"{node.operator}: the model imports no opset of '{node.domain or 'ai.onnx'}'"
    signature = signature_of(node.op_type, node.domain, opset)
    if (node.domain, node.op_type) in OPS:
        if signature is None:
            since = operators.first_version(node.op_type, node.domain)
            opsets_of_it = f"from {since} on" if since else f"below {_end_of(node)}"
            return f"{node.operator} does not exist at opset {opset}, only {opsets_of_it}"
        return None
    if node.domain == "com.microsoft":
        return _why_not_microsoft(node)
    if signature is None or not has_body(node.op_type, node.domain, opset):
        return f"{node.operator} of opset {opset}"
    needs = _unsupported_in_body(node.op_type, node.domain, opset)
    return f"{node.operator} of opset {opset}, which needs {', '.join(needs)}" if needs else None


def _end_of(node: Node) -> float:
    return BESIDE_THE_STANDARD[node.domain, node.op_type]


def _why_not_microsoft(node: Node) -> str:
    if reason := LEFT_OUT.get(node.op_type):
        return f"{node.operator}, since {reason}"
    return (
        f"{node.operator}, which onnxruntime's optimizer may have written: take the file from "
        "before it, or one optimized with ORT_ENABLE_BASIC"
    )


@cache
def _unsupported_in_body(op_type: str, domain: str, opset: int) -> tuple[str, ...]:
    """Return the unsupported operators in the standard's body of an operator."""
    missing: list[str] = []
    for inner_domain, name in operators_of_body(op_type, domain, opset):
        if (inner_domain, name) in OPS:
            continue
        if has_body(name, inner_domain, opset):
            missing += _unsupported_in_body(name, inner_domain, opset)
        else:
            missing.append(name)
    return tuple(dict.fromkeys(missing))


def _callees_first(source: Source) -> list[FunctionKey]:
    """Return the functions, each after those it calls; refuse recursion and deep calls."""
    callees = {key: _callees(source, function) for key, function in source.functions.items()}
    try:
        ordered = list(TopologicalSorter(callees).static_order())
    except CycleError as error:
        (_, name, _), *_ = error.args[1]
        raise InvalidModel(
            f"Function '{name}' calls itself, but ONNX has no recursion: use a Loop."
        ) from None
    depths: dict[FunctionKey, int] = {}
    for key in ordered:
        depths[key] = 1 + max((depths[callee] for callee in callees[key]), default=0)
    deepest, most = max(depths.values(), default=0), source.limits.function_depth
    if deepest > most:
        raise LimitExceeded(
            f"Functions call functions {deepest} deep; at most {most} are allowed. "
            "Inline them with onnx.inliner, or pass limits=sardonyx.Limits(function_depth=...)."
        )
    return ordered


def _refuse_expansion(source: Source, callees_first: list[FunctionKey]) -> None:
    """Refuse a model with too many nodes, counted with all functions inlined, as in a trace."""
    sizes: dict[FunctionKey, int] = {}

    def size(nodes: tuple[Node, ...]) -> int:
        called = Counter(node.function_key for node in every_node(nodes))
        return sum(count * sizes.get(key, 1) for key, count in called.items())

    for key in callees_first:
        sizes[key] = size(source.functions[key].nodes)
    total = size(source.graph.nodes)
    if sizes and total > source.limits.inlined_nodes:
        raise LimitExceeded(
            f"With its functions inlined the model has {total:,} nodes; at most "
            f"{source.limits.inlined_nodes:,} are allowed. Call functions fewer times, or pass "
            "limits=sardonyx.Limits(inlined_nodes=...)."
        )


def _uses_of_attributes(
    source: Source, callees_first: list[FunctionKey]
) -> Mapping[FunctionKey, Uses]:
    """Return for each function the types that its nodes require of its attributes.

    A node that calls another function requires what that function requires.
    """
    uses: dict[FunctionKey, Uses] = {}
    for key in callees_first:
        function = source.functions[key]
        of_function: Uses = {}
        for node in every_node(function.nodes):
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
) -> set[operators.AttrType]:
    if _is_call(node, source):
        return uses[node.function_key].get(name, set())
    signature = _signature(node, opsets)
    return {signature.attributes[name]} if signature and name in signature.attributes else set()


def _check_values(where: str, values: Mapping[str, Any], uses: Uses) -> None:
    """Refuse attribute values of a function that do not have the type its nodes require."""
    for name, value in values.items():
        if value is not None:
            for kind in uses.get(name, ()):
                schema.check_attribute(where, name, value, kind)


def _check_call(node: Node, function: Function, uses: Uses) -> None:
    """Refuse inputs, outputs and attributes of a call that the function does not have."""
    where = node.title()
    sides = (("inputs", node.inputs, function.inputs), ("outputs", node.outputs, function.outputs))
    for side, actual, declared in sides:
        if len(actual) > len(declared):
            raise InvalidModel(
                f"{where} calls a function of the model with {len(actual)} {side}, but the "
                f"function has {len(declared)}: {', '.join(declared) or 'none'}."
            )
    if unknown := [name for name in node.attributes if name not in function.defaults]:
        raise InvalidModel(
            f"{where} passes the attribute '{unknown[0]}' to a function of the model, but the "
            f"function has {', '.join(map(str, function.defaults)) or 'none'}."
        )
    _check_values(where, node.attributes, uses)


def _callees(source: Source, function: Function) -> set[FunctionKey]:
    return {node.function_key for node in every_node(function.nodes) if _is_call(node, source)}
