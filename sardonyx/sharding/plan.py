"""Plans: the layout of each weight, input and output by the rules, with the reason for it."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node, Source
from sardonyx.graph.values.params import is_static
from sardonyx.sharding.annotations import Annotated, layout_of
from sardonyx.sharding.batch import batch_axes
from sardonyx.sharding.layout import Layout, MeshAxes, Misfit, axis_named
from sardonyx.sharding.tensor_parallel import Choice, choices

# A pattern of names, as in `fnmatch` or a compiled regular expression, and a PartitionSpec.
Pair: TypeAlias = "tuple[str | re.Pattern[str], Any]"
Rules: TypeAlias = "str | Mapping[Any, Any] | Sequence[Pair | str] | None"

DATA_NAMES = ("data", "batch", "dp")
TENSOR_NAMES = ("model", "tensor", "tp", "mp")


@dataclass(eq=False)
class Plan:
    """The layouts of a model's arrays; an array without one is whole on every device."""

    mesh: MeshAxes
    weights: dict[str, Choice] = field(default_factory=dict)
    inputs: dict[str, Choice] = field(default_factory=dict)
    outputs: dict[str, Choice] = field(default_factory=dict)
    # For nodes, the layouts of tensors that they read or compute.
    pins: dict[Node, dict[str, Layout]] = field(default_factory=lambda: defaultdict(dict))
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note to the report, once."""
        if text not in self.notes:
            self.notes.append(text)


def plan(source: Source, mesh: MeshAxes, rules: Rules, annotated: Annotated | None) -> Plan:
    """Return the plan for a model's arrays on a mesh; the first rule that matches an array wins."""
    result = Plan(mesh)
    weights = {n: a for n, a in source.graph.initializers.items() if not is_static(a)}
    for rule in _in_order(rules, annotated):
        if isinstance(rule, str):
            _preset(rule)(result, source, annotated)
        else:
            _follow(result, source, rule)
    for name, choice in result.weights.items():
        _require_fit(choice, weights[name].shape, name, mesh)
    return result


def presets(rules: Rules) -> list[str]:
    """Return the names of the presets among the rules."""
    return [rule for rule in _in_order(rules, None) if isinstance(rule, str)]


def _in_order(rules: Rules, annotated: Annotated | None) -> Iterator[Pair | str]:
    if rules is None:
        yield "data" if annotated is None else "annotations"
    elif isinstance(rules, str):
        yield rules
    elif isinstance(rules, Mapping):
        yield from rules.items()
    elif isinstance(rules, Sequence):
        yield from rules
    else:
        raise InvalidInput(
            f"The rules are a {type(rules).__name__}: pass {_CHOICES}, or a dict from patterns of "
            "names to jax.sharding.PartitionSpec."
        )


def _preset(name: str) -> Callable[[Plan, Source, Annotated | None], None]:
    if name not in _PRESETS:
        raise InvalidInput(
            f"There are no rules called {name!r}: pass {_CHOICES}, or a dict from patterns of "
            "names to jax.sharding.PartitionSpec."
        )
    return _PRESETS[name]


# -- the caller's own rules ---------------------------------------------------------------------


def _follow(result: Plan, source: Source, rule: Any) -> None:
    if not isinstance(rule, Sequence) or len(rule) != 2:
        raise InvalidInput(f"A rule is a pattern and a PartitionSpec, not {rule!r}.")
    pattern, spec = rule
    matches = _matcher(pattern)
    origin = f"The rule for {_text(pattern)!r}"
    layout = Layout.of_spec(spec, result.mesh, origin)
    graph = source.graph
    places: list[tuple[dict[str, Choice], Sequence[str]]] = [
        (result.weights, [n for n, array in graph.initializers.items() if not is_static(array)]),
        (result.inputs, [info.name for info in graph.required_inputs]),
        (result.outputs, [info.name for info in graph.outputs]),
    ]
    has_match = False
    for chosen, names in places:
        for name in filter(matches, names):
            has_match = True
            chosen.setdefault(name, Choice(layout, f"by the rule for {_text(pattern)!r}"))
    if not has_match and not any(map(matches, graph.initializers)):
        example = next((n for _, names in places for n in names), "none")
        raise InvalidInput(
            f"{origin} matches no weight, input or output of the model; names are like '{example}'."
        )


def _matcher(pattern: Any) -> Callable[[str], bool]:
    if isinstance(pattern, re.Pattern):
        return lambda name: pattern.search(name) is not None
    if isinstance(pattern, str):
        return lambda name: fnmatch.fnmatchcase(name, pattern)
    raise InvalidInput(
        f"A rule's pattern is a string, as in fnmatch, or a compiled regular expression, not "
        f"{pattern!r}."
    )


def _text(pattern: str | re.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else str(pattern.pattern)


def _require_fit(choice: Choice, shape: tuple[int, ...], name: str, mesh: MeshAxes) -> None:
    try:
        choice.layout.on(shape, mesh)
    except Misfit as reason:
        raise InvalidInput(
            f"The weight '{name}' of shape {list(shape)} cannot be divided {choice.reason}: "
            f"{reason}. Put a rule for it first, such as PartitionSpec() to keep it whole."
        ) from None


# -- presets ------------------------------------------------------------------------------------


def _data(result: Plan, source: Source, _: Annotated | None) -> None:
    axis = axis_named(result.mesh, DATA_NAMES, "the batch")
    for name, place in batch_axes(source.graph.required_inputs).items():
        result.inputs.setdefault(name, Choice(Layout.along(place, axis), "the batch"))


def _tensor(result: Plan, source: Source, annotated: Annotated | None) -> None:
    axis = axis_named(result.mesh, TENSOR_NAMES, "matrices")
    tensor = choices(source, axis, result.mesh[axis])
    result.weights = {**tensor.weights, **result.weights}
    for node, layouts in tensor.results.items():
        result.pins[node] = {**layouts, **result.pins[node]}
    if any(name in result.mesh for name in DATA_NAMES if name != axis):
        _data(result, source, annotated)


def _annotations(result: Plan, source: Source, annotated: Annotated | None) -> None:
    """Follow the file's annotations; a tensor that they cannot divide stays whole, with a note."""
    if annotated is None:
        raise InvalidInput("The model has no device annotations: pass other rules=.")
    own = frozenset(id(node) for node in source.graph.nodes)
    for node, placement in annotated.nodes:
        for division in placement.divisions:
            # Inside functions and subgraphs, the same name may mean another value.
            placed = _placed_by(result, source, division.tensor) if id(node) in own else None
            try:
                layout = layout_of(division, result.mesh)
                if placed is result.weights:
                    layout.on(source.graph.initializers[division.tensor].shape, result.mesh)
            except Misfit as reason:
                result.note(f"'{division.tensor}' of {node.label} stays whole: {reason}.")
                continue
            choice = Choice(layout, f"as annotated at {node.label}")
            first = choice if placed is None else placed.setdefault(division.tensor, choice)
            if placed is None or first.layout != layout:
                result.pins[node][division.tensor] = layout
    if annotated.stages > 1:
        result.note(
            f"The {annotated.stages} stages of the pipeline run one after the other, on all "
            "devices."
        )


def _placed_by(result: Plan, source: Source, name: str) -> dict[str, Choice] | None:
    """Return the plan's layouts that include this weight or input; None for other values."""
    if any(info.name == name for info in source.graph.required_inputs):
        return result.inputs
    array = source.graph.initializers.get(name)
    return None if array is None or is_static(array) else result.weights


_PRESETS = {"data": _data, "tensor": _tensor, "annotations": _annotations}
_CHOICES = ", ".join(map(repr, _PRESETS))
