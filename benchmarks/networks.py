"""Six networks that torch exports, on sardonyx and on what else there is: time, start, memory.

Run it: `python -m benchmarks.networks`; half a minute for one network and two runtimes:
`python -m benchmarks.networks --networks resnet50 --batches 1 --peers sardonyx --threads 1`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from rich.console import Console

from benchmarks.measure import CannotError, Worker, all_threads, in_turns, minimum_and_median
from benchmarks.models import NETWORKS
from benchmarks.page import fill
from benchmarks.peers import PEERS, Job
from benchmarks.results import BASE, ROOFLINE, Record, Results, console, notes, table, this_machine
from benchmarks.roofline import Rates, Work, needed, rates_of_gpu

MEMORY = "peak memory of the process"


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    networks: Sequence[str]
    batches: Sequence[int]
    peers: Sequence[str]
    threads: Sequence[int]
    rounds: int
    turn: float
    starts: int
    folder: Path
    gpu: bool
    together: bool
    say: Callable[[str], None]

    def job(self, peer: str, network: str, batch: int, threads: int) -> Job:
        cache = str(self.folder / "compiled" / peer) if PEERS[peer].slow else None
        return Job(peer, network, batch, threads, str(self.folder), cache, self.gpu)

    def reference(self, network: str, batch: int) -> Path:
        """The file of the right results: onnxruntime's, on the CPU."""
        return self.folder / "results" / f"{network}-{batch}.npz"

    def open(self, job: Job) -> Worker:
        """The process of a job, checked against onnxruntime's results."""
        kind = "gpu" if job.gpu else f"{job.threads}-threads"
        log = self.folder / "log" / f"{job.peer}-{job.network}-{job.batch}-{kind}.txt"
        try:
            return Worker(job, self.reference(job.network, job.batch), log)
        except CannotError as reason:
            self.say(f"{PEERS[job.peer].title} cannot: {reason} (more in {log})")
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    out = console()
    options = _parser().parse_args(arguments)
    if options.show:
        results = Results.read(options.show)
    else:
        results = Results(machine=this_machine())
        plan = _plan(options, out)
        _export(plan)
        for record in _measured(plan):
            results.records.append(record)
            if options.json:
                results.write(options.json)
    out.print(table(results.records))
    for note in notes(results.records):
        out.print(f"cannot: {note}", highlight=False)
    if options.plot:
        from benchmarks.plots import draw  # noqa: PLC0415

        for path in draw(results.records, options.plot):
            out.print(f"wrote {path}")
    if options.page:
        fill(options.page, results)
        out.print(f"filled {options.page}")


def _measured(plan: Plan) -> Iterator[Record]:
    rates = rates_of_gpu() if plan.gpu else None
    for networks in [plan.networks] if plan.together else [[name] for name in plan.networks]:
        for batch, threads in product(plan.batches, plan.threads):
            yield from _calls(plan, networks, batch, threads, rates)
        if plan.starts:
            for network in networks:
                plan.say(f"{NETWORKS[network].title}, starting")
                yield from _starts(plan, network)


def _refer(plan: Plan, network: str, batch: int) -> None:
    """Leave onnxruntime's results for the others to be compared with."""
    if not plan.reference(network, batch).exists():
        job = replace(plan.job(BASE, network, batch, all_threads()), gpu=False)
        plan.open(job).close()


def _calls(
    plan: Plan, networks: Sequence[str], batch: int, threads: int, rates: Rates | None
) -> Iterator[Record]:
    """What a call takes, of all runtimes in turn, for one network after the other.

    The processes of all these networks open side by side, if there are several networks, and each
    waits for its turn.
    """
    opened: dict[tuple[str, str], Future[Worker]] = {}
    with ExitStack() as stack:
        for network in networks:
            _refer(plan, network, batch)
        side_by_side = (all_threads() // 2 or 1) if len(networks) > 1 else 1
        pool = stack.enter_context(ThreadPoolExecutor(side_by_side))
        for network, peer in product(networks, plan.peers):
            job = plan.job(peer, network, batch, threads)
            opened[network, peer] = pool.submit(plan.open, job)
            stack.callback(_close, opened[network, peer])
        wait(opened.values())
        for network in networks:
            plan.say(f"{NETWORKS[network].title}, batch {batch}, {_measure(plan, threads)}")
            futures = {peer: opened[network, peer] for peer in plan.peers}
            yield from _in_turns(plan, network, batch, threads, futures, rates)


def _close(opened: Future[Worker]) -> None:
    if opened.exception() is None:
        opened.result().close()


def _in_turns(
    plan: Plan,
    network: str,
    batch: int,
    threads: int,
    opened: Mapping[str, Future[Worker]],
    rates: Rates | None,
) -> Iterator[Record]:
    over = "torch_compiled" if plan.gpu else BASE
    blank = Record(_measure(plan, threads), "ms", network, batch, "", over=over)
    workers: dict[str, Worker] = {}
    for peer, future in opened.items():
        try:
            workers[peer] = future.result()
        except CannotError as reason:
            yield replace(blank, peer=peer, note=str(reason))
    times = in_turns(workers, plan.rounds, plan.turn)
    if rates and (works := [Work(*w.facts["work"]) for w in workers.values() if "work" in w.facts]):
        times[ROOFLINE] = [rates.least_seconds(needed(works))]
    least = {peer: minimum_and_median([1e3 * t for t in times[peer]]) for peer in times}
    for peer, (value, median) in least.items():
        base, base_median = least.get(over, (None, None))
        yield replace(
            blank, peer=peer, value=value, median=median, base=base, base_median=base_median
        )


def _starts(plan: Plan, network: str) -> Iterator[Record]:
    """Seconds from nothing to the first result, cold and from a cache, and memory then; batch 1."""
    bases: dict[str, float] = {}
    for peer in plan.peers:
        if not PEERS[peer].loads:
            continue
        try:
            figures = _start(plan, network, peer)
        except CannotError as reason:
            yield Record("load + first call", "s", network, 1, peer, note=str(reason))
            continue
        if peer == BASE:
            bases = figures
        for measure, value in figures.items():
            unit = "MB" if measure == MEMORY else "s"
            yield Record(measure, unit, network, 1, peer, value, base=bases.get(measure))


def _start(plan: Plan, network: str, peer: str) -> dict[str, float]:
    """The least of several processes, each of which starts anew."""
    job = replace(plan.job(peer, network, 1, all_threads()), cache=None)
    cold = [_facts(plan, job) for _ in range(plan.starts)]
    warm = cold
    if PEERS[peer].caches:
        with tempfile.TemporaryDirectory() as cache:
            caching = replace(job, cache=cache)
            _facts(plan, caching)
            warm = [_facts(plan, caching) for _ in range(plan.starts)]
    return {
        "load + first call": min(facts["load"] + facts["first"] for facts in cold),
        "load + first call, second process": min(facts["load"] + facts["first"] for facts in warm),
        MEMORY: min(facts["peak_bytes"] for facts in cold) / 1e6,
    }


def _facts(plan: Plan, job: Job) -> dict[str, float]:
    worker = plan.open(job)
    worker.close()
    return worker.facts


def _export(plan: Plan) -> None:
    for name in ("results", "log"):
        (plan.folder / name).mkdir(parents=True, exist_ok=True)
    for network in plan.networks:
        if not (plan.folder / f"{network}.onnx").exists():
            from benchmarks.exports import export  # noqa: PLC0415

            plan.say(f"{NETWORKS[network].title}: torch exports it")
            export(network, plan.folder)
            for stale in (plan.folder / "results").glob(f"{network}-*.npz"):
                stale.unlink()


def _measure(plan: Plan, threads: int) -> str:
    if plan.gpu:
        return "on the GPU, wall time"
    return "one thread, CPU time" if threads == 1 else f"{threads} threads, wall time"


def _plan(options: argparse.Namespace, out: Console) -> Plan:
    peers = [p for p in PEERS if p in options.peers or p == BASE]
    threads = [all_threads() if t == "all" else int(t) for t in options.threads]
    if options.gpu:
        threads = [all_threads()]
    peers = [p for p in peers if (PEERS[p].on_gpu if options.gpu else PEERS[p].on_cpu)]
    return Plan(
        networks=options.networks,
        batches=options.batches,
        peers=peers,
        threads=list(dict.fromkeys(threads)),
        rounds=options.rounds,
        turn=options.turn,
        starts=options.starts,
        folder=options.folder,
        gpu=options.gpu,
        together=options.together,
        say=lambda line: out.print(line, style="dim", highlight=False),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    everything = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--networks", choices=list(NETWORKS), default=list(NETWORKS), **everything)
    parser.add_argument("--peers", choices=list(PEERS), default=list(PEERS), **everything)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", nargs="+", default=["1", "all"], help="numbers, or 'all'")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each runtime")
    parser.add_argument("--turn", type=float, default=0.2, help="seconds of one turn")
    parser.add_argument("--starts", type=int, default=3, help="processes for each cold start")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks",
        help="where the exported networks are kept",
    )
    parser.add_argument("--json", type=Path, help="a file to which the results are added")
    parser.add_argument("--show", type=Path, help="show the results of such a file instead")
    parser.add_argument("--plot", type=Path, help="a folder for the plots")
    parser.add_argument("--page", type=Path, help="a page whose tables are filled anew")
    parser.add_argument("--gpu", action="store_true", help="on a GPU, with the roofline beside it")
    parser.add_argument(
        "--together",
        action="store_true",
        help="open the processes of all networks side by side: much memory, little time",
    )
    return parser


if __name__ == "__main__":
    main()
