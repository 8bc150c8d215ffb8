"""Many devices: the tests in `tests/devices`, in a process that has eight of the CPU's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "devices"
FILES = [
    pytest.param(path, marks=[pytest.mark.slow] if "exporter" in path.stem else [], id=path.stem)
    for path in sorted(FOLDER.glob("test_*.py"))
]


@pytest.mark.parametrize("path", FILES)
@pytest.mark.slow
def test_on_eight_devices(path: Path) -> None:
    flags = "--xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, "-o", "addopts=--strict-markers", str(path)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
