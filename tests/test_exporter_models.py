"""Graphs as real exporters write them, against the results onnxruntime gave when they were made."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend

FOLDER = Path(__file__).parent / "models"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))


def recorded_calls(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The inputs and expected outputs stored beside a model, call by call."""
    calls: dict[str, tuple[dict[str, Any], dict[str, Any]]] = defaultdict(lambda: ({}, {}))
    with np.load(FOLDER / f"{name}.npz") as stored:
        for key in stored:
            call, direction, value = key.split("/", 2)
            calls[call][direction == "out"][value] = stored[key]
    return list(calls.values())


@pytest.mark.parametrize("name", NAMES)
def test_results_agree_with_onnxruntime(name: str, xp: Backend) -> None:
    model = sardonyx.load(FOLDER / f"{name}.onnx", backend=xp)
    for _ in range(2):  # The first round records, the second replays.
        for feeds, expected in recorded_calls(name):
            found = model.run(list(expected), feeds)
            for value, wanted in zip(found, expected.values(), strict=True):
                assert value.dtype == wanted.dtype
                np.testing.assert_allclose(value, wanted, rtol=2e-4, atol=2e-5)
