"""BERT-base over eight of the CPU's devices, in one process and in two: results, bytes, sums.

Run it: `python -m benchmarks.sharding`. The first network of this kind is exported with torch; its
weights lie in a file beside it. Each layout runs in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.models import NETWORKS
from benchmarks.results import console

DEVICES, BATCH = 8, 8
LAYOUTS: dict[str, tuple[dict[str, int], str]] = {
    "data, 8": ({"data": 8}, "data"),
    "tensor, 8": ({"model": 8}, "tensor"),
    "tensor, 4, data, 2": ({"data": 2, "model": 4}, "tensor"),
}
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def measure(path: str, layout: str, address: str, number: str, count: str) -> dict[str, Any]:
    """What one of `count` processes finds: its results against one device's, and what it read."""
    import jax  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    if int(count) > 1:
        jax.distributed.initialize(address, int(count), int(number))
    axes, rules = LAYOUTS[layout]
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes))
    feeds = NETWORKS["bert_base"].feeds(BATCH)
    sharded = sardonyx.shard(path, mesh, rules)
    read = sharded.reading.read
    found = sharded(**feeds)
    text = sharded.compiled(**feeds).as_text()
    wanted = sardonyx.load(path, device=jax.local_devices()[0]).run(None, feeds)
    pairs = zip(found, wanted, strict=True)
    return {
        "error": max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs),
        "read": read,
        "total": sharded.reading.total,
        "per device": sharded.report.bytes_per_device,
        "collectives": {k: len(re.findall(rf" {k}(-start)?\(", text)) for k in COLLECTIVES},
    }


def together(path: Path, layout: str, count: int) -> list[dict[str, Any]]:
    """The same in several processes that share the devices."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = f"--xla_force_host_platform_device_count={DEVICES // count}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.sharding", "measure", str(path), layout, address]
    processes = [
        subprocess.Popen(
            [*command, str(number), str(count)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for number in range(count)
    ]
    told = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a process failed; what it said stands above")
    return [json.loads(text.splitlines()[-1]) for text in told]


def main() -> None:
    from benchmarks.exports import export  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    path = export("bert_base", parser.parse_args().folder)
    table = Table(title=f"BERT-base, batch {BATCH}, 128 tokens, over {DEVICES} virtual devices")
    heads = ("processes", "off from one device", "MB per device", "MB read by each process")
    for column in ("layout", *heads, "collectives"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for layout in LAYOUTS:
        for count in (1, 2):
            found = together(path, layout, count)
            first = found[0]
            collectives = ", ".join(f"{n} {k}" for k, n in first["collectives"].items() if n)
            table.add_row(
                layout,
                str(count),
                f"{max(each['error'] for each in found):.1e}",
                f"{first['per device'] / 1e6:.1f} of {first['total'] / 1e6:.1f}",
                " and ".join(f"{each['read'] / 1e6:.1f}" for each in found),
                collectives or "none",
            )
    console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
