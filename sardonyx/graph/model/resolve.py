"""A model that is to become something else: one that was loaded already, or what can be loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sardonyx.backends.numpy import HOST
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.custom_ops import with_ops
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import Readable, read_model
from sardonyx.graph.model.model import Model
from sardonyx.graph.values.params import Params
from sardonyx.ops.definition import Op


class Opened(NamedTuple):
    """What a model says and holds; a loaded one stays as strict as it was loaded."""

    source: Source
    params: Params
    strict: bool

    @classmethod
    def of(cls, model: Model | Readable, *, strict: bool, ops: Iterable[Op[Any]] = ()) -> Opened:
        if isinstance(model, Model):
            return cls(with_ops(model.source, ops), model.params, model.is_strict)
        source = with_ops(load_source(*read_model(model)), ops)
        audit(source, strict=strict)
        return cls(source, Params(source.graph.initializers, HOST), strict)
