"""Processes that run one runtime each, and take turns."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers import PEERS, Job

# torch may take minutes to compile.
PATIENCE = 900
# Threads that wait for more work by spinning have given up after this.
PAUSE = 0.05


class CannotError(Exception):
    """A runtime does not run this network, or not rightly; the reason is its message."""


class Worker:
    """A process in which a runtime has been opened and has given the right results."""

    def __init__(self, job: Job, reference: Path, log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(job))]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, str(reference)],
                env=_environment(job),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            self.facts = self._answer()
        except CannotError:
            self.close()
            raise

    def turn(self, seconds: float) -> list[float]:
        """Call it for about this long; the seconds of each call."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        times: list[float] = self._answer()
        return times

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> Any:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], PATIENCE)[0]:
            raise CannotError(f"no answer within {PATIENCE} s")
        line = out.readline()
        if not line:
            raise CannotError(f"the process ended with {self._process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "cannot" in answer:
            raise CannotError(answer["cannot"])
        return answer


def in_turns(workers: Mapping[str, Worker], rounds: int, turn: float) -> dict[str, list[float]]:
    """Seconds of every call, so that the machine's moods fall on all alike."""
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            times[name] += worker.turn(turn)
            time.sleep(PAUSE)
    return times


def minimum_and_median(times: Sequence[float]) -> tuple[float, float]:
    return min(times), statistics.median(times)


def all_threads() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _environment(job: Job) -> dict[str, str]:
    made = {**os.environ, **PEERS[job.peer].environment}
    # An installed package has its bytecode; a checkout gets it in the first process.
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    # What was compiled before is used where the job names its folder, and nowhere else.
    made.pop("JAX_COMPILATION_CACHE_DIR", None)
    if job.cache:
        made["TORCHINDUCTOR_CACHE_DIR"] = job.cache
    else:
        made["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    if job.gpu:
        # JAX takes most of the card's memory at once, and here there are several processes.
        return made | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    made |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": str(job.threads)}
    if job.threads == 1:
        made["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + made.get("XLA_FLAGS", "")
    return made
