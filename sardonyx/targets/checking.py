"""Reports of a model on several targets, by one process that compiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import onnx

from sardonyx.errors import InvalidInput
from sardonyx.sharding.plan import Rules
from sardonyx.targets.jobs import LOADED, SHARDED, ModelJob
from sardonyx.targets.names import Target, named, require_compiler
from sardonyx.targets.report import TargetReport
from sardonyx.targets.worker import LIMIT, Worker


def reports_of(
    model: Any,
    targets: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    options: Mapping[str, Any],
    *,
    rules: Rules,
    mesh: Mapping[str, int],
    limit: float | None,
) -> tuple[TargetReport, ...]:
    """Return a report for each target; `options` are those of `load` and of `shard`."""
    chosen = _targets(targets)
    for target in chosen:
        require_compiler(target)
    source = _sendable(model)
    sizes = {name: _shape(name, shape) for name, shape in shapes.items()}

    def job(target: Target) -> ModelJob:
        if not target.is_mesh:
            return ModelJob(source, target, LOADED, sizes, options=options)
        over = {**options, "rules": rules}
        return ModelJob(source, target, SHARDED, sizes, options=over, mesh=mesh)

    with Worker(LIMIT if limit is None else limit) as worker:
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
