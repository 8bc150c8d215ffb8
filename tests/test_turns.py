"""Tests that take a GPU's memory wait for those that use it, and keep others out meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from select import select

import pytest

from tests.support.turns import turn_on_gpu

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks of files there")
OTHER = """
import sys
from pathlib import Path
from tests.support.turns import turn_on_gpu
folder = Path(sys.argv[1])
print("waits", flush=True)
with turn_on_gpu(folder, alone=sys.argv[2] == "alone"):
    print("in", flush=True)
    sys.stdin.read()
"""


def other(folder: Path, how: str) -> subprocess.Popen[str]:
    """Another process, which has its turn until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert said(process) == "waits"
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def has_said(process: subprocess.Popen[str]) -> bool:
    """Whether it says anything within a moment."""
    return bool(select([process.stdout], [], [], 0.2)[0])


def test_who_wants_it_alone_comes_before_those_who_ask_later(tmp_path: Path) -> None:
    with turn_on_gpu(tmp_path, alone=False):
        second = other(tmp_path, "shared")
        assert said(second) == "in", "two may share it"
        alone = other(tmp_path, "alone")
        assert not has_said(alone)
        later = other(tmp_path, "shared")
        assert not has_said(later)
        second.communicate()
    assert said(alone) == "in"
    assert not has_said(later)
    alone.communicate()
    assert said(later) == "in"
    later.communicate()
