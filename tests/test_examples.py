"""The examples run as they stand, and say what they are meant to say."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_is_tested() -> None:
    found = sorted(path.name for path in EXAMPLES.glob("*.py"))
    # The first in saving/test_fine_tuned.py, the second in test_training.py.
    assert found == ["back_to_onnx.py", "fine_tuning.py", "quickstart.py"]


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    left = runpy.run_path(str(EXAMPLES / "quickstart.py"))
    with np.load(EXAMPLES / "encoder.npz") as calls:
        np.testing.assert_allclose(left["y"], calls["0/out/y"], rtol=1e-4, atol=1e-5)
    told = capsys.readouterr().out
    assert "float32[2, 16, 48] in, float32[2, 16, 48] out" in told
    assert "segment 0 on" in told
