"""Programs for hardware that is not here, compiled ahead into a file for it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sardonyx.cli.ahead_programs import place_of, report
from sardonyx.cli.shapes import Shapes
from sardonyx.errors import InvalidInput, UnsupportedModel
from sardonyx.targets.jobs import CacheJob
from sardonyx.targets.names import named, require_compiler
from sardonyx.targets.worker import Worker


def compile_for_target(
    path: str,
    calls: Sequence[Shapes],
    output: str | None,
    *,
    target: str,
    precision: str,
    limit: float,
) -> str:
    """Compile a model for one TPU or GPU that need not be here; return a report."""
    chosen = named(target)
    if chosen.is_mesh:
        raise InvalidInput(
            f"The target {target!r} is a mesh, and models over meshes are compiled where they run: "
            "pass one chip, such as v5e or h100."
        )
    require_compiler(chosen)
    signatures, file = list(calls) or [{}], place_of(path, output)
    options = {"precision": precision}
    job = CacheJob(os.path.abspath(path), chosen, tuple(signatures), os.path.abspath(file), options)
    with Worker(limit) as worker:
        record = worker.run(job)
    if not record.is_compiled:
        raise UnsupportedModel(f"{path!r} was not compiled for {target!r}: {record.reason}")
    seconds = sum(program.seconds for program in record.programs)
    return "\n".join([report(file, len(signatures), seconds), *dict.fromkeys(record.notes)])
