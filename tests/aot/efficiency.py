"""`python -m tests.aot.efficiency`: what the compilers make of patterns, written to a table.

Kernels, and the bytes that they read and write, of each pattern as sardonyx runs it and as it is
written by hand. The tests compare with the table, so that no change makes programs worse unseen.
"""

from __future__ import annotations

import json
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from sardonyx.targets.jobs import Job
from sardonyx.targets.records import Record
from sardonyx.targets.worker import Worker
from tests.aot.patterns import PATTERNS, Pattern

TARGETS = ("h100", "v5e")
TABLE = Path(__file__).parent / "efficiency.json"
# cuDNN, which these need not bring along, computes some of the attention.
COMPILERS = ("jaxlib", "libtpu", "jax-cuda13-plugin", "nvidia-cudnn-cu13")


def found(worker: Worker, pattern: Pattern, target: str) -> dict[str, Any]:
    """Return the figures of a pattern; None where the compiler refuses what is written by hand."""
    ours = _figures(worker, pattern.model(target))
    assert isinstance(ours, list), f"{pattern.name} in {pattern.dtype} for {target}: {ours}"
    by_hand = _figures(worker, pattern.function(target))
    return {"sardonyx": ours, "by hand": by_hand if isinstance(by_hand, list) else None}


def _figures(worker: Worker, job: Job) -> list[int] | str:
    """Return the kernels and the bytes of a program, or why it was not compiled."""
    record: Record = worker.run(job)
    if not record.is_compiled:
        return record.reason
    (program,) = record.programs
    assert program.facts is not None
    return [program.facts.kernels, round(program.facts.accessed)]


def versions() -> dict[str, str]:
    """The versions of the compilers that are installed, on which all figures depend."""
    installed = {found.name for found in distributions()}
    return {name: version(name) for name in COMPILERS if name in installed}


def main() -> None:
    rows = {}
    with Worker() as worker:
        for target in TARGETS:
            for pattern in PATTERNS:
                rows[pattern.key(target)] = row = found(worker, pattern, target)
                print(pattern.key(target), row, flush=True)
    table = {"compilers": versions(), "kernels and bytes": rows}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
