"""What people call: `sardonyx.shard`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sardonyx.arguments import check_switches, check_text
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
    strict: bool = True,
) -> ShardedModel:
    """Divide a model over the devices of a `jax.sharding.Mesh`.

    `rules` is a dict, or a list of pairs, from patterns of names (as in `fnmatch`, or a compiled
    regular expression) to `PartitionSpec`: for weights, inputs and outputs. The first that matches
    holds, and what none matches is whole on every device. Or it is the name of a preset, which may
    also stand in a list after rules of your own: "data" divides the batch over the mesh's axis
    "data"; "tensor" divides matrices over its axis "model", and the batch where it has "data" too;
    "annotations" follows what the file says of devices (ONNX's IR 11), under the `configuration` of
    that name. None stands for "annotations" if there are any, and for "data" otherwise.

    Given a path, each process reads of weights that are mapped from beside the model only the part
    that its devices hold.

    >>> import jax, numpy as np, sardonyx
    >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
    >>> sharded = sardonyx.shard("examples/encoder.onnx", mesh, "data")
    >>> sharded(np.zeros((jax.device_count(), 8, 48), np.float32)).shape[1:]
    (8, 48)
    """
    check_switches(strict=strict)
    if configuration is not None:
        check_text(configuration=configuration)
    source, host, strict = Opened.of(model, strict=strict)
    # JAX is imported only where it is asked for.
    make = import_module("sardonyx.sharding.model").sharded
    made: ShardedModel = make(source, host, mesh, rules, configuration, strict=strict)
    return made
