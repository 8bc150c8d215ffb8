"""Profiles of fused segments: timed as they run, and shared by steps that events time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sardonyx

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

ENCODER = Path(__file__).parents[2] / "examples" / "encoder.onnx"


@pytest.mark.parametrize("is_on_device", [False, True])
def test_a_profile_of_fused_kernels(*, is_on_device: bool) -> None:
    loaded = sardonyx.load(ENCODER, backend="cupy")
    x = np.ones((2, 8, 48), np.float32)
    expected = loaded(x)
    profile = loaded.profile(cupy.asarray(x) if is_on_device else x)
    assert profile.tier == "fused"
    assert profile.method == "shares of steps one by one"
    (segment,) = profile.segments
    assert sum(profile.seconds_by_node.values()) == pytest.approx(segment.seconds)
    assert all(seconds >= 0 for seconds in profile.seconds_by_node.values())
    assert profile.accounted == pytest.approx(profile.total, rel=0.5)
    assert np.allclose(loaded(x), expected)
