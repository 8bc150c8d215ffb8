"""Counts the work of calls on CuPy: kernels, graphs, bytes and memory, as the table of docs/gpu.md.

Where torch is installed:    python -m benchmarks.launches write FOLDER
With the emulated device:    python -m emulated_cuda run python -m benchmarks.launches count FOLDER

The counts are those of the emulated device, which are a GPU's; there are no times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx

NETWORKS = {
    "resnet": "ResNet",
    "mobile": "MobileNet",
    "vit": "ViT",
    "bert": "BERT",
    "gpt2": "GPT-2",
    "llama": "Llama",
}
# Calls before the one that is counted: recorded, run by kernels, captured.
CALLS_BEFORE = 4


@dataclass
class Memory:
    """What the programs of a network need for the arrays between kernels, in bytes."""

    # Of kernels, with one for each primitive, and as they are.
    moved_before: int = 0
    moved: int = 0
    # Of arrays between kernels: each by itself, those alive at one time, and the planned block.
    arrays: int = 0
    alive: int = 0
    block: int = 0


def write(folder: Path) -> None:
    """Write the networks, for which torch is needed."""
    from benchmarks import small_models  # noqa: PLC0415

    for name in NETWORKS:
        small_models.write(name, folder)


def count(folder: Path) -> None:
    titles = (
        "steps' kernels", "kernels", "products", "graphs", "waits", "copied bytes",
        "moved before", "moved", "arrays", "alive", "block",
    )  # fmt: skip
    print(f"| | {' | '.join(titles)} |")
    print("| --- |" + " --- |" * len(titles))
    for name, title in NETWORKS.items():
        plain, _ = counted(folder, name, fuses=False)
        cost, memory = counted(folder, name, fuses=True)
        numbers = (
            plain.kernels, cost.kernels, cost.library_calls, cost.graph_launches,
            cost.synchronizations, cost.bytes_on_device, memory.moved_before, memory.moved,
            memory.arrays, memory.alive, memory.block,
        )  # fmt: skip
        print(f"| {title} | {' | '.join(f'{number:,}' for number in numbers)} |", flush=True)


def counted(folder: Path, name: str, *, fuses: bool) -> tuple[Any, Memory]:
    """Return the counts of a replayed call, with arrays on the device, and its memory."""
    from emulated_cuda import counts  # noqa: PLC0415
    from sardonyx.backends.cupy.backend import CupyBackend  # noqa: PLC0415

    class Collecting(CupyBackend):
        """Remembers the programs of the segments."""

        fuses_segments = fuses

        def bind(self, *arguments: Any, **options: Any) -> Any:
            executable = super().bind(*arguments, **options)
            programs.append(getattr(executable.run, "program", None))
            return executable

    programs: list[Any] = []
    backend = Collecting()
    model = sardonyx.load(folder / f"{name}.onnx", backend=backend)
    with np.load(folder / f"{name}.npz") as feeds:
        inputs = {key: backend.put(feeds[key]) for key in feeds}
    for _ in range(CALLS_BEFORE):
        model(**inputs)
    with counts.counted() as cost:
        model(**inputs)
    stats = model.stats()
    for reasons in (stats.unfused, stats.uncaptured):
        for reason in reasons:
            print(f"{name}: {reason}", file=sys.stderr)
    return cost, memory_of(program for program in programs if program is not None)


def memory_of(programs: Iterable[Any]) -> Memory:
    from sardonyx.backends.fusion.kernels import is_literal  # noqa: PLC0415
    from sardonyx.backends.fusion.nodes import Indexed  # noqa: PLC0415

    memory = Memory()
    for program in programs:
        for kernel in program.kernels:
            nodes = [n for n in kernel.inlined if not (isinstance(n, Indexed) and n.rule.is_view)]
            for node in nodes:
                read = [operand for operand in node.operands if not is_literal(operand)]
                memory.moved_before += sum(map(nbytes, [node, *read]))
            memory.moved += sum(map(nbytes, [*kernel.leaves, *kernel.stores]))
        lifetimes = list(program.placement.lifetimes.values())
        memory.arrays += sum(each.size for each in lifetimes)
        places = range(max((each.last for each in lifetimes), default=-1) + 1)
        alive = (sum(e.size for e in lifetimes if e.first <= i <= e.last) for i in places)
        memory.alive += max(alive, default=0)
        memory.block += program.placement.layout.size
    return memory


def nbytes(node: Any) -> int:
    return int(node.size * node.dtype.itemsize)


if __name__ == "__main__":
    {"write": write, "count": count}[sys.argv[1]](Path(sys.argv[2]))
