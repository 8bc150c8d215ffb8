"""From rules to a plan: the layout of each weight, input and output, and why it is so."""

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
    """What is to lie where. What is not named is whole on every device."""

    mesh: MeshAxes
    weights: dict[str, Choice] = field(default_factory=dict)
    inputs: dict[str, Choice] = field(default_factory=dict)
    outputs: dict[str, Choice] = field(default_factory=dict)
    # The tensors of nodes that are given a layout where the node reads or makes them.
    pins: dict[Node, dict[str, Layout]] = field(default_factory=lambda: defaultdict(dict))
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Remember what a person should be told, once."""
        if text not in self.notes:
            self.notes.append(text)


def plan(source: Source, mesh: MeshAxes, rules: Rules, annotated: Annotated | None) -> Plan:
    """The plan for a model's arrays over a mesh with these axes. The first rule that fits holds."""
    made = Plan(mesh)
    weights = {n: a for n, a in source.graph.initializers.items() if not is_static(a)}
    for rule in _in_order(rules, annotated):
        if isinstance(rule, str):
            _preset(rule)(made, source, annotated)
        else:
            _follow(made, source, rule)
    for name, choice in made.weights.items():
        _require_fit(choice, weights[name].shape, name, mesh)
    return made


def presets(rules: Rules) -> list[str]:
    """The presets among the rules, by name."""
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


# -- rules of a caller's own --------------------------------------------------------------------


def _follow(made: Plan, source: Source, rule: Any) -> None:
    if not isinstance(rule, Sequence) or len(rule) != 2:
        raise InvalidInput(f"A rule is a pattern and a PartitionSpec, not {rule!r}.")
    pattern, spec = rule
    matches = _matcher(pattern)
    told = f"The rule for {_text(pattern)!r}"
    layout = Layout.of_spec(spec, made.mesh, told)
    graph = source.graph
    places: list[tuple[dict[str, Choice], Sequence[str]]] = [
        (made.weights, [n for n, array in graph.initializers.items() if not is_static(array)]),
        (made.inputs, [info.name for info in graph.required_inputs]),
        (made.outputs, [info.name for info in graph.outputs]),
    ]
    found = False
    for chosen, names in places:
        for name in filter(matches, names):
            found = True
            chosen.setdefault(name, Choice(layout, f"by the rule for {_text(pattern)!r}"))
    if not found and not any(map(matches, graph.initializers)):
        example = next((n for _, names in places for n in names), "none")
        raise InvalidInput(
            f"{told} matches no weight, input or output of the model; names are like '{example}'."
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
            f"{reason}. Put a rule for it before that one, with PartitionSpec() to keep it whole."
        ) from None


# -- presets ------------------------------------------------------------------------------------


def _data(made: Plan, source: Source, _: Annotated | None) -> None:
    axis = axis_named(made.mesh, DATA_NAMES, "the batch")
    for name, place in batch_axes(source.graph.required_inputs).items():
        made.inputs.setdefault(name, Choice(Layout.along(place, axis), "the batch"))


def _tensor(made: Plan, source: Source, annotated: Annotated | None) -> None:
    axis = axis_named(made.mesh, TENSOR_NAMES, "matrices")
    found = choices(source, axis, made.mesh[axis])
    made.weights = {**found.weights, **made.weights}
    for node, layouts in found.made.items():
        made.pins[node] = {**layouts, **made.pins[node]}
    if any(name in made.mesh for name in DATA_NAMES if name != axis):
        _data(made, source, annotated)


def _annotations(made: Plan, source: Source, annotated: Annotated | None) -> None:
    """What the file itself says; what has no such form is left whole, and told."""
    if annotated is None:
        raise InvalidInput("The model has no device annotations to follow: pass other rules.")
    own = frozenset(id(node) for node in source.graph.nodes)
    for node, placement in annotated.nodes:
        for division in placement.divisions:
            # Inside of functions and subgraphs names may mean other values.
            placed = _placed_by(made, source, division.tensor) if id(node) in own else None
            try:
                layout = layout_of(division, made.mesh)
                if placed is made.weights:
                    layout.on(source.graph.initializers[division.tensor].shape, made.mesh)
            except Misfit as reason:
                made.note(f"'{division.tensor}' of {node.label} stays whole: {reason}.")
                continue
            choice = Choice(layout, f"as annotated at {node.label}")
            first = choice if placed is None else placed.setdefault(division.tensor, choice)
            if placed is None or first.layout != layout:
                made.pins[node][division.tensor] = layout
    if annotated.stages > 1:
        made.note(
            f"The {annotated.stages} stages of the pipeline run one after the other, on all "
            "devices."
        )


def _placed_by(made: Plan, source: Source, name: str) -> dict[str, Choice] | None:
    """Where the layout of a weight or input is noted; of other values there is none."""
    if any(info.name == name for info in source.graph.required_inputs):
        return made.inputs
    array = source.graph.initializers.get(name)
    return None if array is None or is_static(array) else made.weights


_PRESETS = {"data": _data, "tensor": _tensor, "annotations": _annotations}
_CHOICES = ", ".join(map(repr, _PRESETS))
