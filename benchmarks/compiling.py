"""What tracing and compiling take: ResNet-50, BERT-base, and a graph of 5,000 nodes.

Run it: `python -m benchmarks.compiling`. Each line is a process of its own. The first of each model
takes one stage after the other; the second finds in the cache what the first one left, and calls.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.table import Table

from benchmarks.calls import WIDTH, large_model
from benchmarks.models import NETWORKS, Feeds
from benchmarks.results import console

NODES = 5000
CHAIN = f"{NODES:,} nodes"
MODELS = {"resnet50": "ResNet-50", "bert_base": "BERT-base", "chain": CHAIN}
TOLERANCE = 1e-4


def measure(name: str, path: str, cache: str, ahead: str) -> dict[str, Any]:
    """Seconds from the file to the first result; those of tracing and compiling, if "ahead"."""
    import jax  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    jax.devices()
    feeds = _feeds(name)
    clock = _Clock()
    model = sardonyx.load(path, backend="jax", cache=cache)
    seconds = {"load": clock.lap()}
    if ahead:
        model.trace(**feeds)
        seconds["trace"] = clock.lap()
        model.compile(feeds)
        seconds["compile"] = clock.lap()
    result = model.run(None, feeds)[0]
    seconds["first call"] = clock.lap()
    _check(path, feeds, result)
    told = model.stats()
    return {**seconds, "all": sum(seconds.values()), "segments": told.compiles + told.shared}


def measure_onnxruntime(name: str, path: str) -> dict[str, Any]:
    import onnxruntime  # noqa: PLC0415

    feeds = _feeds(name)
    clock = _Clock()
    session = onnxruntime.InferenceSession(path)
    loaded = clock.lap()
    session.run(None, feeds)
    first = clock.lap()
    return {"load": loaded, "first call": first, "all": loaded + first}


class _Clock:
    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        since, self._last = now - self._last, now
        return since


def _feeds(name: str) -> Feeds:
    if name == "chain":
        return {"x": np.random.default_rng(1).standard_normal((WIDTH, WIDTH), np.float32)}
    return NETWORKS[name].feeds(1)


def _check(path: str, feeds: Feeds, result: Any) -> None:
    import onnxruntime  # noqa: PLC0415

    expected = onnxruntime.InferenceSession(path).run(None, feeds)[0]
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    assert error <= TOLERANCE, f"off by {error:.1e} of the largest"


def _file(name: str, folder: Path) -> Path:
    """The model's file; the chain is products of small matrices with sines between them."""
    if name != "chain":
        from benchmarks.exports import export  # noqa: PLC0415

        return export(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chain.onnx"
    onnx.save(large_model(NODES, NODES // 2)[0], path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    given = parser.parse_args()
    columns = ("load", "trace", "compile", "first call", "all")
    table = Table(title="Seconds from the file to the first result, wall time")
    for column in ("", "runtime", *columns, "segments"):
        table.add_column(column, justify="left" if column in ("", "runtime") else "right")
    for name in given.models:
        path = str(_file(name, given.folder))
        with tempfile.TemporaryDirectory() as cache:
            kinds = {
                "sardonyx, cold": ["sardonyx", name, path, cache, "ahead"],
                "sardonyx, from the cache": ["sardonyx", name, path, cache, ""],
                "onnxruntime": ["onnxruntime", name, path],
            }
            for kind, arguments in kinds.items():
                found = _in_its_own_process(arguments)
                cells = [f"{found[c]:.2f}" if c in found else "" for c in columns]
                table.add_row(MODELS[name], kind, *cells, str(found.get("segments", "")))
        table.add_section()
    console().print(table)


def _in_its_own_process(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.compiling", "measure", *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if sys.argv[1:3] == ["measure", "sardonyx"]:
        print(json.dumps(measure(*sys.argv[3:])))
    elif sys.argv[1:3] == ["measure", "onnxruntime"]:
        print(json.dumps(measure_onnxruntime(*sys.argv[3:])))
    else:
        main()
