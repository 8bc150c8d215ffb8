"""Compiles cases for a target, and says what the outcome means."""

from __future__ import annotations

from typing import NamedTuple

import sardonyx
from sardonyx.errors import SardonyxError
from sardonyx.targets.jobs import LOADED
from sardonyx.targets.records import COMPILED, REFUSED
from sardonyx.targets.worker import Worker
from tests.aot.cases import Case

# The model is refused on every platform, or has nothing that a device would run.
INVALID, ON_HOST = "refused everywhere", "runs on the host"
OUTCOMES = (COMPILED, ON_HOST, INVALID, REFUSED, "failed", "timed out", "aborted")

# Custom calls that a program may have, by the beginnings of their names: XLA's own and those of
# libraries that it brings or finds. Anything else needs something on the machine.
OF_TPUS = (
    "X64", "X128", "AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast",
    "GatherScatterIndicesBitpacked", "InvertDiagBlocks", "Lu", "Sharding", "TopK",
    "tpu_custom_call",
)  # fmt: skip
OF_GPUS = (
    "__cublas$", "__cudnn$", "__cub$", "cusolver", "cu_", "__topk", "TopK", "cub_sort",
)  # fmt: skip


class Outcome(NamedTuple):
    """How compiling a case ended, the reason unless it compiled, and what its programs have."""

    kind: str
    reason: str
    seconds: float
    # What no program may contain: calls of the host, unknown custom calls.
    foreign: tuple[str, ...] = ()


def outcome_of(worker: Worker, case: Case, target: str, form: str = LOADED) -> Outcome:
    """Compile a case; a refusal counts only if other platforms do not refuse it as well."""
    record = worker.run(case.job(target, form))
    kind = record.outcome
    if kind == REFUSED and _is_invalid(case):
        kind = INVALID
    elif kind == COMPILED and not record.programs:
        kind = ON_HOST
    facts = [program.facts for program in record.programs if program.facts is not None]
    known = OF_TPUS if record.target.startswith(("v", "tpu")) else OF_GPUS
    calls = {name for each in facts for name in each.custom_calls}
    foreign = {name for name in calls if not name.startswith(known)}
    foreign |= {name for each in facts for name in each.host_calls}
    return Outcome(kind, record.reason, record.seconds, tuple(sorted(foreign)))


def _is_invalid(case: Case) -> bool:
    model, inputs = case.made()
    try:
        sardonyx.load(model, backend="numpy", **case.options).run(None, dict(inputs))
    except SardonyxError:
        return True
    return False
