"""A process in which each thread has a default stream of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def output_of(code: str) -> str:
    """Run Python code in such a process, without an error or a warning; return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    assert not finished.stderr
    return finished.stdout.strip()
