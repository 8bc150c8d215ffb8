"""`sardonyx info`: versions, backends, devices, kernels, caches and threads."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from sardonyx.backends import processors
from sardonyx.cli.main import main


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["numpy"] == np.__version__
    assert found["versions"]["jax"] == jax.__version__
    assert found["backends"]["numpy"] == {
        "present": True, "is_default": False, "devices": ["cpu:0"]
    }  # fmt: skip
    assert found["backends"]["jax"]["present"]
    assert any(device.startswith("cpu:0") for device in found["backends"]["jax"]["devices"])
    assert found["processors"]["usable"] == processors.available()
    assert "oneDNN" in found["kernels"]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    for word in ("Backends", "jax", "oneDNN", "usable"):
        assert word in told
