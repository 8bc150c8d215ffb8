"""Exported programs: their size, the time to make and to load them, and their results.

Run it: `python -m benchmarks.exporting`. Each program is made for CPU, CUDA and TPU at once, with
every size free that the model leaves free, and is loaded in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.models import NETWORKS
from benchmarks.results import console

MODELS = ("mobilenet_v2", "resnet50", "bert_base", "gpt2_decode")
PLATFORMS = ("cpu", "cuda", "tpu")


def made(name: str, model: Path, artefact: Path) -> dict[str, Any]:
    """Export one network, and look at what was written."""
    import jax.export  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    start = time.perf_counter()
    exported = sardonyx.export(model, platforms=PLATFORMS)
    traced = time.perf_counter()
    exported.save(artefact)
    saved = time.perf_counter()
    program = jax.export.deserialize(bytearray(exported.program))
    return {
        "export": traced - start,
        "save": saved - traced,
        "program": len(exported.program),
        "file": artefact.stat().st_size,
        "sizes": ", ".join(_free(exported)),
        "platforms": ", ".join(program.platforms),
        "calls": sorted(set(re.findall(r"custom_call @([\w.]+)", program.mlir_module()))),
    }


def _free(exported: Any) -> list[str]:
    names = {d for info in exported.inputs for d in info.shape or () if isinstance(d, str)}
    return [*sorted(names), *exported.bounds]


def measure(name: str, model: str, artefact: str) -> dict[str, Any]:
    """Seconds from the file to the first result, and how far it is from the model's own."""
    import jax  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    jax.devices()
    start = time.perf_counter()
    program = sardonyx.load(artefact)
    loaded = time.perf_counter()
    feeds = NETWORKS[name].feeds(2)
    found = program.run(None, feeds)
    first = time.perf_counter()
    wanted = sardonyx.load(model).run(None, feeds)
    pairs = zip(found, wanted, strict=True)
    return {
        "load": loaded - start,
        "first": first - loaded,
        "error": max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs),
    }


def main() -> None:
    from benchmarks.exports import export  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m benchmarks.exporting", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    given = parser.parse_args()
    table = Table(title=f"Programs for {', '.join(PLATFORMS)}; seconds are wall time")
    columns = ("sizes that stay free", "export, s", "program, kB", "file, MB", "load, s")
    for column in ("", *columns, "first call, s", "off from the model", "calls besides StableHLO"):
        table.add_column(column, justify="left" if column in ("", columns[0]) else "right")
    for name in given.models:
        model = export(name, given.folder)
        artefact = given.folder / f"{name}.sardonyx"
        told = made(name, model, artefact)
        command = [sys.executable, "-m", "benchmarks.exporting", "measure", name]
        ended = subprocess.run(
            [*command, str(model), str(artefact)], check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(ended.stdout.splitlines()[-1])
        table.add_row(
            NETWORKS[name].title,
            told["sizes"],
            f"{told['export']:.1f}",
            f"{told['program'] / 1e3:.0f}",
            f"{told['file'] / 1e6:.1f}",
            f"{found['load']:.2f}",
            f"{found['first']:.2f}",
            f"{found['error']:.1e}",
            ", ".join(told["calls"]) or "none",
        )
    console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
