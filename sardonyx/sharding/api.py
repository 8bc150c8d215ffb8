"""`sardonyx.shard`: a model over several devices."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sardonyx.arguments import check_level, check_text, precision_level
from sardonyx.graph.loading.read import Readable
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.resolve import Opened
from sardonyx.sharding.plan import Rules

if TYPE_CHECKING:
    from sardonyx.sharding.model import ShardedModel


def shard(
    model: Model | Readable,
    mesh: Any = None,
    rules: Rules = None,
    *,
    configuration: str | None = None,
    precision: str | None = None,
    strict: bool | None = None,
) -> ShardedModel:
    """Divide a model over the devices of a `jax.sharding.Mesh`.

    `rules` maps patterns of names to `PartitionSpec`, for weights, inputs and outputs. It is a dict
    or a list of pairs; a pattern is as in `fnmatch`, or a compiled regular expression. The first
    match decides, and arrays without a match are replicated. `rules` may also be a preset, or a
    list that ends with one: "data" divides the batch over the mesh's axis "data"; "tensor" divides
    matrices over the axis "model", and the batch over "data" if the mesh has it; "annotations"
    follows the device annotations of the file (ONNX's IR 11), under the `configuration` of that
    name. None is "annotations" if the model has any, and "data" otherwise.

    `precision` is a word of `load`; None is that of a loaded model, or "highest".

    If the model is a path, each process reads only its devices' part of the external weights.

    >>> import jax, numpy as np, sardonyx
    >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
    >>> sharded = sardonyx.shard("examples/encoder.onnx", mesh, "data")
    >>> sharded(np.zeros((jax.device_count(), 8, 48), np.float32)).shape[1:]
    (8, 48)
    """
    check_level(strict)
    level = None if precision is None else precision_level(precision)
    if configuration is not None:
        check_text(configuration=configuration)
    source, host, checks_types, own = Opened.of(model, strict=strict)
    # JAX is imported only where it is asked for.
    make = import_module("sardonyx.sharding.model").sharded
    sharded: ShardedModel = make(
        source, host, mesh, rules, configuration, precision=level or own, strict=checks_types
    )
    return sharded
