"""The model that `to_jax`, `shard` and `export` start from: a loaded one, or one to load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.custom_ops import with_ops
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import Readable, read_model
from sardonyx.graph.model.model import Model
from sardonyx.graph.values.params import WeightStore
from sardonyx.ops.definition import Op


class Opened(NamedTuple):
    """A model's graph and weights; a loaded model keeps the strictness that it was loaded with."""

    source: Source
    weights: WeightStore
    strict: bool
    precision: str

    @classmethod
    def of(
        cls, model: Model | Readable, *, strict: bool | None, ops: Iterable[Op[Any]] = ()
    ) -> Opened:
        if isinstance(model, Model):
            if model._options.checked:
                raise InvalidInput(
                    "The model checks its data (checked=True), but exported programs, sharded "
                    "models and functions of to_jax never do: load it without checked=."
                )
            source = with_ops(model._source, ops)
            return cls(source, model._shared.weights, model.is_strict, model._backend.precision)
        source = with_ops(load_source(*read_model(model)), ops)
        source = replace(source, to_the_letter=strict is True)
        checks_types = strict is not False
        audit(source, strict=checks_types)
        store = WeightStore(source.graph.initializers, HOST)
        return cls(source, store, checks_types, HOST.precision)
