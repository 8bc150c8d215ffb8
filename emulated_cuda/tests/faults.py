"""Runs programs in processes of their own, since a fault ends the context of its process."""

from __future__ import annotations

import os
import subprocess
import sys


def lines_of(program: str, **variables: object) -> list[str]:
    """Return the lines that a program prints."""
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()
