"""`python -m tests.aot v5e h100`: compiles everything for TPUs and GPUs, and prints a table.

Neither device is needed, only the extra `aot`. Whatever does not compile is listed with its reason.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from zlib import crc32

from sardonyx.targets.worker import Worker
from tests.aot import cases
from tests.aot.cases import Case
from tests.aot.outcomes import OUTCOMES, Outcome, outcome_of

KINDS: Mapping[str, Callable[[], Iterable[Case]]] = {
    "operators": cases.operators,
    "types": cases.operators_by_type,
    "models": cases.exporters_models,
    "nodes": cases.node_cases,
    "networks": cases.networks,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.aot", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--one-in", type=int, default=1, metavar="N")
    parser.add_argument("--seconds", type=float, default=300, help="for each case")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for target in given.targets:
        for kind in given.kinds:
            chosen = [c for c in KINDS[kind]() if crc32(c.name.encode()) % given.one_in == 0]
            counts = Counter(_counted(target, chosen, given.seconds, given.processes))
            total = ", ".join(f"{counts[each]} {each}" for each in OUTCOMES if counts[each])
            print(f"{target}, {kind}: {len(chosen)} cases: {total}", flush=True)


def _counted(target: str, chosen: list[Case], seconds: float, processes: int) -> Iterable[str]:
    """Compile the cases in several processes; print those that do not compile, yield outcomes."""
    with ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(processes):
            idle.put(stack.enter_context(Worker(seconds)))
        pool = stack.enter_context(ThreadPoolExecutor(processes))

        def compiled(case: Case) -> tuple[Case, Outcome]:
            worker = idle.get()
            try:
                return case, outcome_of(worker, case, target)
            finally:
                idle.put(worker)

        for case, outcome in pool.map(compiled, chosen):
            if outcome.kind not in OUTCOMES[:3] or outcome.foreign:
                reason = " ".join((*outcome.foreign, outcome.reason))
                print(f"  {case.name}: {outcome.kind}: {reason[:300]}", flush=True)
            yield outcome.kind


if __name__ == "__main__":
    main()
