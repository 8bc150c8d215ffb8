"""A model in the form in which its weights are inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.checking.audit import all_nodes
from sardonyx.graph.checking.initializer_dependencies import initializers_behind, must_be_known
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo
from sardonyx.graph.model.form import Call, Form
from sardonyx.graph.model.interface import CallOptions
from sardonyx.graph.model.model import Model
from sardonyx.graph.programs.program import Program
from sardonyx.graph.standard.types import type_name
from sardonyx.graph.values.params import is_static

_FLOATS = ("real floating", "complex floating")


class PureForm(Form):
    """Calls of a pure function, which draw random numbers only from their own key."""

    @cached_property
    def _draws_anew(self) -> bool:
        """Whether there is anything random without a seed of its own."""
        return any(
            op.at(opsets.get(node.domain, 0)).draws and node.attributes.get("seed") is None
            for node, opsets in all_nodes(self.source)
            if (op := self.source.op_of(node)) is not None
        )

    def key(self, options: CallOptions) -> Any:
        if options.key is not None:
            return options.key
        if self._draws_anew:
            raise InvalidInput(
                "The model draws at random, and a pure function has no source of its own: pass a "
                "key, as in fn(params, x, key=jax.random.key(0))."
            )
        return self.backend.key(0)

    def record(self, call: Call, *, execute: bool) -> tuple[Callable[[], Program], Sequence[Any]]:
        some_key = self.backend.key(0) if call.options.key is None else call.options.key
        keyed = replace(call, options=replace(call.options, key=some_key))
        recorded = super().record(keyed, execute=execute)
        if call.entry.recording.root.draws:
            self.key(call.options)
        return recorded


class PureModel(Model):
    """A model that is a pure function."""

    _form_type = PureForm


def weights_of(source: Source) -> dict[str, np.ndarray[Any, Any]]:
    """Return the initializers that are weights: floats and large arrays that decide no shape."""
    needed = initializers_behind(source, must_be_known)
    return {
        name: array
        for name, array in source.graph.initializers.items()
        if name not in needed and (is_float(array) or not is_static(array))
    }


def is_float(array: np.ndarray[Any, Any]) -> bool:
    """Return whether it holds real or complex floats, of any width."""
    return isdtype(array.dtype, _FLOATS)


def with_weights_as_inputs(
    source: Source, weights: Mapping[str, Spec], renewed: Iterable[str] = ()
) -> Source:
    """Return the model with these initializers as last inputs, the `renewed` as last outputs."""
    graph, chosen = source.graph, weights.keys()
    others = {name: a for name, a in graph.initializers.items() if name not in chosen}
    # What ops must know is written into the graph, where no call can change it.
    fixed = {name: array for name, array in others.items() if not is_static(array)}
    defaults = [info for info in graph.optional_inputs if info.name in others.keys() - fixed.keys()]
    infos = {name: _info(name, spec) for name, spec in weights.items()}
    form = Graph(
        graph.name,
        inputs=(*graph.required_inputs, *infos.values(), *defaults),
        outputs=(*graph.outputs, *(infos[name] for name in renewed)),
        nodes=(*(_constant(name, array) for name, array in fixed.items()), *graph.nodes),
        initializers={name: array for name, array in others.items() if name not in fixed},
    )
    return replace(source, graph=form)


def _info(name: str, spec: Spec) -> ValueInfo:
    return ValueInfo(name, type_name(spec.dtype), spec.dtype, spec.shape)


def _constant(name: str, array: np.ndarray[Any, Any]) -> Node:
    return Node("Constant", "", "", name, (), (name,), {"value": array})
