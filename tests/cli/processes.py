"""The command line as a process of its own, in a pipe or in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.cli.models import ROOT

COMMAND = [sys.executable, "-m", "sardonyx"]
COLUMNS = 80


def environment(**more: str) -> dict[str, str]:
    """Return variables for a process: JAX on the CPU, and none that decide about colours."""
    ours = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {
        **ours,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "JAX_PLATFORMS": "cpu",
    } | more


def in_terminal(arguments: Sequence[str], **more: str) -> tuple[int, str]:
    """Run a command in a terminal of 80 columns; return the status and all that it shows."""
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    termios = pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, COLUMNS))
    run = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**more), close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # As Linux says that nobody writes to it any more.
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return run.wait(), shown.decode().replace("\r\n", "\n")
