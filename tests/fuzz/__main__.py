"""`python -m tests.fuzz --graphs 1000 --seed 1 --minutes 10` compares runtimes on random graphs.

`--only INDEX` runs one graph of the series again in this process, and prints what comes of it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import onnx

from tests.fuzz.building import built
from tests.fuzz.report import summary
from tests.fuzz.working import Plan, run_one, supervise


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--start", type=int, default=0, help="the first graph of the series")
    parser.add_argument("--only", type=int, help="run this graph alone")
    parser.add_argument("--shrink", type=float, default=60, help="seconds for each disagreement")
    parser.add_argument("--folder", type=Path, help="where progress is written")
    given = parser.parse_args()
    plan = Plan(given.seed, shrink=given.shrink)
    if given.only is not None:
        return _only(plan, given.only)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcome = supervise(plan, given.graphs, 60 * given.minutes, folder, given.start)
    for found in outcome.findings:
        _print(found)
    print("\n".join(outcome.broken))
    print(summary(outcome.counts, outcome.findings))
    return bool(outcome.findings or outcome.broken)


def _only(plan: Plan, index: int) -> int:
    print(onnx.printer.to_text(built(plan.seed, index)[0].model))
    plan = Plan(plan.seed, dict.fromkeys(plan.every, 1), plan.shrink)
    counts: Counter[str] = Counter()
    found = list(run_one(plan, index, counts))
    for one in found:
        _print(one)
    return bool(found)


def _print(found: dict[str, object]) -> None:
    print(f"\n== seed {found['seed']}, graph {found['index']}: {found['runtime']}, {found['call']}")
    print(f"{found['kind']}: {found['text']}\n{found['model']}")
    print("\n".join(f"{k} = {v}" for k, v in dict(found["inputs"]).items()))  # type: ignore[call-overload]


raise SystemExit(main())
