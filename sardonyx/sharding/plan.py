"""Plans: the layout of each weight, input and output by the rules, with the reason for it."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node, Source
from sardonyx.graph.values.params import is_static
from sardonyx.sharding.annotations import Annotated, layout_of
from sardonyx.sharding.batch import batch_axes
from sardonyx.sharding.layout import WHOLE, Choice, Layout, MeshAxes, Misfit, axis_named
from sardonyx.sharding.tensor_parallel import divided_matrices

# A pattern of names, as in `fnmatch` or a compiled regular expression, and a PartitionSpec.
Pair: TypeAlias = "tuple[str | re.Pattern[str], Any]"
Rules: TypeAlias = "str | Mapping[Any, Any] | Sequence[Pair | str] | None"

DATA_NAMES = ("data", "batch", "dp")
TENSOR_NAMES = ("model", "tensor", "tp", "mp")


@dataclass(eq=False)
class Plan:
    """The layouts of a model's arrays; an array without one is whole on every device."""

    source: Source
    mesh: MeshAxes
    weights: dict[str, Choice] = field(default_factory=dict)
    inputs: dict[str, Choice] = field(default_factory=dict)
    outputs: dict[str, Choice] = field(default_factory=dict)
    # For nodes, the layouts of tensors that they read or compute.
    pins: dict[Node, dict[str, Layout]] = field(default_factory=lambda: defaultdict(dict))
    notes: list[str] = field(default_factory=list)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The weights of the model; its other initializers are known while tracing."""
        initializers = self.source.graph.initializers
        return {name: array for name, array in initializers.items() if not is_static(array)}

    def note(self, text: str) -> None:
        """Add a note to the report, once."""
        if text not in self.notes:
            self.notes.append(text)


def plan(source: Source, mesh: MeshAxes, rules: Rules, annotated: Annotated | None) -> Plan:
    """Return the plan for a model's arrays on a mesh; the first rule that matches an array wins."""
    result = Plan(source, mesh)
    for rule in _in_order(rules, annotated):
        if not isinstance(rule, str):
            _follow(result, rule)
        elif rule in _PRESETS:
            _PRESETS[rule](result, annotated)
        else:
            raise InvalidInput(f"There are no rules called {rule!r}: pass {_CHOICES}.")
    for name, choice in result.weights.items():
        _require_fit(choice, result.arrays[name].shape, name, mesh)
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
        raise InvalidInput(f"The rules are a {type(rules).__name__}: pass {_CHOICES}.")


# -- the caller's own rules ---------------------------------------------------------------------


def _follow(result: Plan, rule: Any) -> None:
    if not isinstance(rule, Sequence) or len(rule) != 2:
        raise InvalidInput(f"A rule is a pattern and a PartitionSpec, not {rule!r}.")
    pattern, spec = rule
    matches, text = _matcher(pattern), getattr(pattern, "pattern", pattern)
    origin = f"The rule for {text!r}"
    choice = Choice(Layout.of_spec(spec, result.mesh, origin), f"by the rule for {text!r}")
    graph = result.source.graph
    places: list[tuple[dict[str, Choice], list[str]]] = [
        (result.weights, list(result.arrays)),
        (result.inputs, [info.name for info in graph.required_inputs]),
        (result.outputs, [info.name for info in graph.outputs]),
    ]
    names = [name for _, each in places for name in each]
    if not any(map(matches, (*names, *graph.initializers))):
        example = next(iter(names), "none")
        raise InvalidInput(
            f"{origin} matches no weight, input or output of the model; names are like '{example}'."
        )
    for chosen, each in places:
        for name in filter(matches, each):
            chosen.setdefault(name, choice)


def _matcher(pattern: Any) -> Callable[[str], bool]:
    if isinstance(pattern, re.Pattern):
        return lambda name: pattern.search(name) is not None
    if isinstance(pattern, str):
        return lambda name: fnmatch.fnmatchcase(name, pattern)
    raise InvalidInput(
        f"A rule's pattern is a string, as in fnmatch, or a compiled regular expression, not "
        f"{pattern!r}."
    )


def _require_fit(choice: Choice, shape: tuple[int, ...], name: str, mesh: MeshAxes) -> None:
    try:
        choice.layout.on(shape, mesh)
    except Misfit as reason:
        raise InvalidInput(
            f"The weight '{name}' of shape {list(shape)} cannot be divided {choice.reason}: "
            f"{reason}. Put a rule for it first, such as PartitionSpec() to keep it whole."
        ) from None


# -- presets ------------------------------------------------------------------------------------


def _data(result: Plan, _: Annotated | None) -> None:
    axis = axis_named(result.mesh, DATA_NAMES, "the batch")
    for name, place in batch_axes(result.source.graph.required_inputs).items():
        result.inputs.setdefault(name, Choice(Layout.along(place, axis), "the batch"))


def _tensor(result: Plan, annotated: Annotated | None) -> None:
    axis = axis_named(result.mesh, TENSOR_NAMES, "matrices")
    divided = divided_matrices(result.source, result.arrays, axis, result.mesh[axis])
    result.weights = {**divided.weights, **result.weights}
    for node, layouts in divided.results.items():
        result.pins[node] = {**layouts, **result.pins[node]}
    by_rules = set(result.inputs)
    if any(name in result.mesh for name in DATA_NAMES if name != axis):
        _data(result, annotated)
    for name, cache in divided.caches.items():
        if name not in by_rules:
            if not cache.layout:
                result.note(f"The input '{name}' is not divided like its heads: {cache.reason}.")
            batch = result.inputs.get(name, WHOLE).layout
            layout = Layout((*batch.axes, *cache.layout.axes))
            result.inputs[name] = Choice(layout, cache.reason)


def _annotations(result: Plan, annotated: Annotated | None) -> None:
    """Follow the file's annotations; a tensor that they cannot divide stays whole, with a note."""
    if annotated is None:
        raise InvalidInput("The model has no device annotations: pass other rules=.")
    own = set(result.source.graph.nodes)
    for node, placement in annotated.nodes:
        for division in placement.divisions:
            # Inside functions and subgraphs, the same name may mean another value.
            choices = _choices_with(result, division.tensor) if node in own else None
            try:
                layout = layout_of(division, result.mesh)
                if choices is result.weights:
                    layout.on(result.arrays[division.tensor].shape, result.mesh)
            except Misfit as reason:
                result.note(f"'{division.tensor}' of {node.label} stays whole: {reason}.")
                continue
            choice = Choice(layout, f"as annotated at {node.label}")
            if choices is None or choices.setdefault(division.tensor, choice).layout != layout:
                result.pins[node][division.tensor] = layout
    if annotated.stages > 1:
        result.note(
            f"The {annotated.stages} stages of the pipeline run one after the other, on all "
            "devices."
        )


def _choices_with(result: Plan, name: str) -> dict[str, Choice] | None:
    """Return the plan's choices for weights or for inputs, whichever it is; else None."""
    if any(info.name == name for info in result.source.graph.required_inputs):
        return result.inputs
    return result.weights if name in result.arrays else None


_PRESETS = {"data": _data, "tensor": _tensor, "annotations": _annotations}
_CHOICES = (
    f"{', '.join(map(repr, _PRESETS))}, or a dict from patterns of names to "
    "jax.sharding.PartitionSpec"
)
