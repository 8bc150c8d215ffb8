"""A profile on the CPU where libtpu is installed, whose own profiler ends the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.aot
pytest.importorskip("libtpu", reason="no libtpu; pip install 'sardonyx[aot]'")

PROFILED = """
import numpy as np, sardonyx
model = sardonyx.load("examples/encoder.onnx", backend="jax")
profile = model.profile(np.zeros((1, 8, 48), np.float32))
print(profile.tier, profile.total > 0, len(profile.nodes) > 0)
"""


def test_a_profile_beside_libtpu_does_not_end_the_process() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    run = [sys.executable, "-c", PROFILED]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["compiled", "True", "True"], done.stderr[-2000:]
