"""`sardonyx.check`: what XLA's compilers say of a model on hardware that is not here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import onnx

from sardonyx.arguments import PRECISIONS, check_choice, check_level
from sardonyx.errors import InvalidInput
from sardonyx.graph.loading.read import Readable
from sardonyx.sharding.plan import Rules
from sardonyx.targets.jobs import LOADED, SHARDED, ModelJob
from sardonyx.targets.names import Target, named, require_compiler
from sardonyx.targets.report import TargetReport
from sardonyx.targets.worker import LIMIT, Worker


def check(
    model: Readable,
    targets: Sequence[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    precision: str | None = None,
    rules: Rules = None,
    mesh: Mapping[str, int] | None = None,
    strict: bool | None = None,
    limit: float = LIMIT,
) -> tuple[TargetReport, ...]:
    """Compile a model for TPUs and GPUs that need not be here; return a report for each.

    A target is one chip, such as "v5e", "v5p", "v6e", "tpu7x", "a100" or "h100", a mesh, such as
    "v5e:2x2" or "h100:8", or the path of a file with XLA's description of a GPU. It needs the extra
    `aot`: XLA's own compilers, which run on any Linux machine.

    `shapes` are those of inputs. An input without one has the sizes that the others give to its
    named dimensions; unknown sizes are 1. `precision` is that of `load`.

    For a mesh the model is divided as `shard` divides it, by its `rules`, over the axes of `mesh`,
    such as {"data": 2, "model": 4}; None is one axis, "data".

    The compiler runs in another process. A model that it refuses, a failure, an end of that process
    or more than `limit` seconds are results, not errors. Weights are not read, except those whose
    values decide the program.
    """
    check_level(strict)
    check_choice("precision", precision, (None, *PRECISIONS))
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
        raise InvalidInput(f"'limit' is {limit!r:.100}: pass a number of seconds.")
    chosen = _targets(targets)
    for target in chosen:
        require_compiler(target)
    given = {"precision": precision, "strict": strict}
    options = {name: value for name, value in given.items() if value is not None}
    source = _sendable(model)
    sizes = {name: _shape(name, shape) for name, shape in (shapes or {}).items()}

    def job(target: Target) -> ModelJob:
        if not target.is_mesh:
            return ModelJob(source, target, LOADED, sizes, options=options)
        over = {**options, "rules": rules}
        return ModelJob(source, target, SHARDED, sizes, options=over, mesh=mesh or {})

    with Worker(limit) as worker:
        return tuple(TargetReport(target, worker.run(job(target))) for target in chosen)


def _targets(names: Sequence[str]) -> list[Target]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InvalidInput(f"The targets are {names!r:.100}: pass a list, as in ['v5e', 'h100'].")
    return list(map(named, names))


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(map(index, shape))
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise InvalidInput(
            f"The shape of '{name}' is {shape!r:.100}: pass whole numbers, as in (1, 3, 224, 224)."
        )
    return sizes


def _sendable(model: Any) -> Any:
    """Return the model in a form that another process can read."""
    if isinstance(model, os.PathLike):
        return os.fspath(model)
    if isinstance(model, (bytearray, memoryview)) or hasattr(model, "read"):
        return bytes(model if not hasattr(model, "read") else model.read())
    if isinstance(model, (str, bytes, onnx.ModelProto)):
        return model
    raise InvalidInput(
        f"A {type(model).__name__} cannot be checked for other hardware: pass the path or the "
        "bytes of the ONNX model."
    )
