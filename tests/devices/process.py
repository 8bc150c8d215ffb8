"""One of several processes that run a model together: `python -m tests.devices.process`.

It is told the coordinator's address, its number, how many there are, the model, the rules, and
where to leave what it found.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import sardonyx

RULES = {
    "data": (("data",), (8,), "data"),
    "tensor": (("model",), (8,), "tensor"),
    "both": (("data", "model"), (2, 4), "tensor"),
    "rows": (("model",), (8,), {"up": P("model"), "down": P("model")}),
}


def main(address: str, number: str, count: str, model: str, rules: str, out: str) -> None:
    jax.distributed.initialize(address, int(count), int(number))
    names, sizes, chosen = RULES[rules]
    mesh = jax.make_mesh(sizes, names)
    sharded = sardonyx.shard(model, mesh, chosen)
    x = np.load(Path(model).with_suffix(".npy"))
    made = sharded(x)
    spanning = jax.make_array_from_callback(
        x.shape, NamedSharding(sharded.mesh, P(names[0])), lambda index: x[index]
    )
    held = sharded(spanning)
    facts = {
        "processes": jax.process_count(),
        "devices": jax.device_count(),
        "read": sharded.reading.read,
        "total": sharded.reading.total,
        "resident": resident_bytes(Path(model).with_suffix(".bin")),
        "spans": not held.is_fully_addressable,
        "parts": sum(shard.data.nbytes for shard in sharded.params["up"].addressable_shards),
    }
    Path(out).with_suffix(".json").write_text(json.dumps(facts))
    np.save(Path(out).with_suffix(".npy"), made)


def resident_bytes(file: Path) -> int:
    """How much of a mapped file this process has touched, as the system sees it."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(file))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
