"""Graphs as real exporters write them, on four devices: the batch over two, matrices over two."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import sardonyx
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_one_device(name: str) -> None:
    mesh = jax.make_mesh((2, 2), ("data", "model"), devices=jax.devices()[:4])
    path = Path(FOLDER) / f"{name}.onnx"
    sharded, model = sardonyx.shard(path, mesh, "tensor"), sardonyx.load(path)
    for given, _ in recorded_calls(name):
        # Twice the batch, so that it can be divided.
        feeds = {key: np.concatenate([array, array]) for key, array in given.items()}
        found = sharded(**feeds)
        for one, wanted in zip(
            found if isinstance(found, tuple) else [found], model.run(None, feeds), strict=True
        ):
            assert one.dtype == wanted.dtype
            np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)
