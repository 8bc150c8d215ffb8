"""A child process that compiles, so that no abort of a compiler ends the caller's process."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from tempfile import TemporaryFile
from threading import Lock
from types import TracebackType
from typing import IO, Any

from sardonyx.errors import InvalidInput
from sardonyx.printable import printable
from sardonyx.targets.jobs import FunctionJob, Job
from sardonyx.targets.names import Target, require_compiler
from sardonyx.targets.records import ABORTED, TIMED_OUT, Record

# Seconds in which a process must have imported JAX and loaded its compiler.
START_LIMIT = 300.0
LIMIT = 600.0

# Beside the caller's own environment. libtpu reads these while it is loaded.
ENVIRONMENT: Mapping[str, str] = {
    # Arrays of the child lie on the CPU, and it never opens a device that this machine may have.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # Neither the metadata server of a cloud nor the PCI bus is asked for a TPU.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # Several processes may compile at once.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}

# The lines in which a compiler says why it gave up.
_FATAL = re.compile(
    r"^F\d{4} .*$|^.*(?:Check failed|LLVM ERROR|Fatal Python error).*$", re.MULTILINE
)
_PREFIX = re.compile(r"^[FE]\d{4} \S+\s+\d+ (\S+\] )?")
_MOST_LOG = 2**16


class Worker:
    """Compiles jobs in a child process, one after the other, and starts it again if it ends.

    It is a context manager; one worker may serve thousands of jobs, and any target.
    """

    def __init__(self, limit: float = LIMIT, *, most_jobs: int = 500) -> None:
        """Allow each job `limit` seconds, and each process `most_jobs`: compilers keep memory."""
        self.limit = limit
        self.most_jobs = most_jobs
        self._child: _Child | None = None
        self._lock = Lock()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def run(self, job: Job, limit: float | None = None) -> Record:
        """Return the record of a job. Only arguments that cannot be pickled raise an error."""
        require_compiler(job.target)
        message = _pickled(job)
        with self._lock:  # Threads may share a worker, which serves one after the other.
            return self._run(message, job.target, self.limit if limit is None else limit)

    def _run(self, message: bytes, target: Target, limit: float) -> Record:
        if self._child is not None and (self._child.ended or self._child.jobs >= self.most_jobs):
            self.close()
        if self._child is None:
            self._child = _Child()
        try:
            record = self._child.run(message, target, limit)
        except BaseException:  # An interruption leaves the child in the middle of a job.
            self.close()
            raise
        if record.outcome in (ABORTED, TIMED_OUT):
            self.close()
        return record


class _Child:
    """One process, and the pipe to it."""

    def __init__(self) -> None:
        self.jobs = 0
        self._log: IO[bytes] = TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "sardonyx.targets.child", str(theirs.fileno())]
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(_places())}
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                # An interruption at the terminal is for the parent, which ends its child.
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the process has ended by itself, or another one has ended it."""
        return self._process.poll() is not None

    def run(self, message: bytes, target: Target, limit: float) -> Record:
        """Send a job, and wait for its record."""
        start = time.monotonic()
        until = start + limit + (START_LIMIT if self.jobs == 0 else 0)
        self.jobs += 1
        self._log.seek(0, os.SEEK_END)
        log_start, stage = self._log.tell(), "started"
        try:
            self._pipe.send_bytes(message)
            while self._pipe.poll(max(0.0, until - time.monotonic())):
                answer = _received(self._pipe)
                if isinstance(answer, Record):
                    return answer
                if stage == "started":  # The time to start the process does not count.
                    start = time.monotonic()
                    until = start + limit
                stage = str(answer)
        except (EOFError, OSError):
            reason = f"The compiler ended its process{_while(stage)}: {self._last_words(log_start)}"
            return Record(str(target), ABORTED, reason, time.monotonic() - start)
        reason = f"It took more than {limit:g} seconds{_while(stage)}."
        return Record(str(target), TIMED_OUT, reason, time.monotonic() - start)

    def _last_words(self, start: int) -> str:
        """Return the line in which the compiler says why, or how the process ended."""
        status = self._process.wait()
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(start, end - _MOST_LOG))
        log = self._log.read().decode(errors="replace")
        fatal = _FATAL.search(log)
        if fatal is not None:
            return printable(_PREFIX.sub("", fatal[0]).strip(), 1000)
        lines = log.strip().splitlines()
        way = f"signal {-status}" if status < 0 else f"exit status {status}"
        return printable(f"{way}; {lines[-1]}" if lines else way, 1000)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()
        self._log.close()


def _received(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())


def _while(stage: str) -> str:
    return "" if stage == "started" else f" while it compiled {stage}"


def _places() -> list[str]:
    """Return where this process finds modules, so that the child finds the same ones."""
    return [place or os.getcwd() for place in sys.path]


def _pickled(job: Job) -> bytes:
    try:
        if isinstance(job, FunctionJob) and job.function.__module__ == "__main__":
            raise pickle.PicklingError("its function is one of the script that runs")
        return pickle.dumps(job)
    except Exception as error:
        raise InvalidInput(
            f"The job cannot be sent to the process that compiles ({error}): pass a function that "
            "a module defines, and a model by its path."
        ) from None
