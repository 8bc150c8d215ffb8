"""Read jobs from a pipe, and answer each with a record."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from sardonyx.printable import printable
from sardonyx.targets.child.jobs import record_of
from sardonyx.targets.records import FAILED, Record


def main() -> None:
    """Serve the pipe with the descriptor that the command line names, until it is closed."""
    pipe = Connection(int(sys.argv[1]))
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, messages), daemon=True).start()

    def say(stage: str) -> None:
        pipe.send_bytes(pickle.dumps(stage))

    while True:
        pipe.send_bytes(pickle.dumps(_answer(messages.get(), say)))


def _answer(message: bytes, say: Callable[[str], None]) -> Any:
    try:
        job = pickle.loads(message)
    except Exception as error:  # A module that only the parent has, or an error in one.
        return Record("", FAILED, printable(f"The job cannot be read: {error}", 1500))
    return record_of(job, say)


def _receive(pipe: Connection, messages: SimpleQueue[bytes]) -> None:
    """Queue what arrives; when the parent has closed the pipe or died, end this process at once."""
    try:
        while True:
            messages.put(pipe.recv_bytes())
    except (EOFError, OSError):
        signal.raise_signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
