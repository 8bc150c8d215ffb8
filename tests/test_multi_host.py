"""Two processes that run one model together, over gloo, with four of the CPU's devices each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.onnx_builders import model, node, value, weight

WIDE, INNER = 512, 2048
MATRIX = WIDE * INNER * 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two matrices and a bias, with its weights in a file beside it."""
    rng = np.random.default_rng(11)
    up = (rng.normal(size=(WIDE, INNER)) / WIDE**0.5).astype(np.float32)
    down = (rng.normal(size=(INNER, WIDE)) / INNER**0.5).astype(np.float32)
    bias = rng.normal(size=INNER).astype(np.float32)
    proto = model(
        [
            node("MatMul", ["x", "up"], ["h"]),
            node("Add", ["h", "bias"], ["b"]),
            node("Relu", ["b"], ["r"]),
            node("MatMul", ["r", "down"], ["y"]),
        ],
        [value("x", ["batch", WIDE])],
        [value("y", ["batch", WIDE])],
        [weight("up", up), weight("down", down), weight("bias", bias)],
    )
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="model.bin", size_threshold=1024)
    np.save(path.with_suffix(".npy"), rng.normal(size=(16, WIDE)).astype(np.float32))
    return path


def together(path: Path, rules: str, folder: Path) -> list[tuple[dict[str, Any], Any]]:
    """What each of two processes found, and the results that it got."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-m", "tests.devices.process"]
    outs = [folder / f"process{number}" for number in range(2)]
    processes = [
        subprocess.Popen(
            [*command, address, str(number), "2", str(path), rules, str(out)],
            env=environment,
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, out in enumerate(outs)
    ]
    ended(processes)
    return [
        (json.loads(out.with_suffix(".json").read_text()), np.load(out.with_suffix(".npy")))
        for out in outs
    ]


def ended(processes: Sequence[subprocess.Popen[str]]) -> None:
    try:
        told = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, told, strict=True):
        assert process.returncode == 0, text


@pytest.mark.parametrize(
    ("rules", "fraction"),
    [("data", 1), ("tensor", 1 / 2), ("both", 1), ("rows", 1 / 2)],
)
@pytest.mark.sampled(4)
def test_two_processes_find_what_one_device_finds(
    path: Path, tmp_path: Path, rules: str, fraction: float
) -> None:
    x = np.load(path.with_suffix(".npy"))
    wanted = sardonyx.load(path, backend="numpy")(x)
    for facts, found in together(path, rules, tmp_path):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        assert (facts["processes"], facts["devices"]) == (2, 8)
        assert facts["spans"]
        bias = INNER * 4 * (fraction if rules == "tensor" else 1)
        assert facts["total"] == 2 * MATRIX + INNER * 4
        assert facts["read"] == 2 * MATRIX * fraction + bias
        if rules == "rows":
            # What the system counts comes in pages, and in small groups of them.
            assert MATRIX / 2 < facts["resident"] < facts["read"] * 1.1


@pytest.mark.slow
def test_processes_draw_the_same_numbers(tmp_path: Path) -> None:
    proto = model(
        [
            node("RandomNormalLike", ["x"], ["noise"]),
            node("Add", ["x", "noise"], ["n"]),
            node("Add", ["n", "up"], ["y"]),
        ],
        [value("x", ["batch", WIDE])],
        [value("y", ["batch", WIDE])],
        [weight("up", np.zeros(WIDE, np.float32))],
    )
    path = tmp_path / "random.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="random.bin", size_threshold=0)
    x = np.zeros((16, WIDE), np.float32)
    np.save(path.with_suffix(".npy"), x)
    (_, one), (_, other) = together(path, "data", tmp_path)
    np.testing.assert_array_equal(one, other)
    assert abs(one.std() - 1) < 0.05
    # Each device's part is drawn for itself.
    assert len(np.unique(one)) > 0.99 * one.size
