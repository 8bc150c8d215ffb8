"""A process is forked when no thread is in a part that must not be copied halfway."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORK_MEANWHILE = """
import os, threading, time
from sardonyx.backends.forks import Unforked

part, entered, left = Unforked(), threading.Event(), []

def work():
    with part, part:
        entered.set()
        time.sleep(0.2)
        left.append(True)

threading.Thread(target=work).start()
entered.wait()
child = os.fork()
if not child:
    with part:
        os._exit(not left)
assert left
assert os.waitpid(child, 0)[1] == 0
with part:
    pass
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_waits_for_the_thread_and_leaves_the_lock_free() -> None:
    code = [sys.executable, "-W", "ignore", "-c", FORK_MEANWHILE]
    subprocess.run(code, check=True, timeout=60)
