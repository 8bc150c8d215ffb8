"""A decoder of 70 billion parameters over meshes of TPUs, by the preset "tensor", as XLA sees it.

Run it: `python -m benchmarks.meshes`; it fills the table of docs/sharding.md. XLA's compiler for
TPUs needs no TPU (the extra `aot`), and no weight is ever read: nothing here is a measurement.

All layers are equal, so that two small numbers of them are compiled, and what a layer adds is
counted as often as there are layers. `--whole` compiles all layers instead, for minutes each.
`--tokens 1024` compiles prompts of that length, also for minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.large_decoder import Sizes, write
from sardonyx.targets.jobs import SHARDED, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.records import Record
from sardonyx.targets.worker import Worker

PAGE = Path(__file__).parents[1] / "docs" / "sharding.md"
RESULTS = Path(__file__).parent / "last" / "meshes.json"
BEGIN, END = "<!-- meshes: python -m benchmarks.meshes -->", "<!-- end of meshes -->"
FEW, MORE = 2, 4
LIMIT = 1800.0
# New tokens of each sequence in a step of the decoder; a prompt has more.
STEP = 1
ROOM = 4096
# Without it, programs of prompts come back from libtpu in a form that jaxlib 0.10.2 cannot read.
OPTIONS = "--xla_tpu_enable_async_collective_fusion=false"


@dataclass(frozen=True)
class Mesh:
    """A target, the sizes of the mesh's axes, and the sequences of a step."""

    target: str
    data: int
    model: int
    sequences: int = 32

    @property
    def title(self) -> str:
        return f"{self.target}, data {self.data} x model {self.model}"

    @property
    def batch(self) -> int:
        return self.data * self.sequences


MESHES = (
    Mesh("v5e:2x4", 1, 8),
    Mesh("v6e:2x4", 1, 8),
    Mesh("v5p:2x2x2", 1, 8),
    Mesh("v5e:8x8", 4, 16),
    Mesh("v6e:8x8", 8, 8),
    Mesh("v5p:4x4x4", 8, 8),
    Mesh("v5e:16x16", 16, 16),
    Mesh("v6e:16x16", 32, 8),
    Mesh("v5p:4x8x8", 32, 8),
)


@dataclass(frozen=True)
class Found:
    """Of one device and one call: what the compiler says, or why it refused."""

    title: str
    length: int
    batch: int
    weights: float = 0.0
    caches: float = 0.0
    results: float = 0.0
    temporaries: float = 0.0
    room: float = 0.0
    collectives: float = 0.0
    count: float = 0.0
    kinds: str = ""
    reason: str = ""
    # Whether all layers were compiled.
    is_whole: bool = False

    @property
    def peak(self) -> float:
        return self.weights + self.caches + self.results + self.temporaries


def record_of(worker: Worker, mesh: Mesh, length: int, layers: int, folder: Path) -> Record:
    sizes = Sizes(layers=layers, room=ROOM)
    batch = mesh.batch if length == STEP else mesh.data
    cache = (batch, sizes.shared_heads, sizes.room, sizes.head)
    shapes: dict[str, tuple[int, ...]] = {
        "ids": (batch, length),
        "positions": (batch, length),
        "start": (batch,),
        "lengths": (batch,),
    }
    shapes |= {f"past.{i}.{part}": cache for i in range(layers) for part in ("key", "value")}
    job = ModelJob(
        str(write(sizes, folder)),
        named(mesh.target),
        form=SHARDED,
        shapes=shapes,
        options={"rules": "tensor"},
        mesh={"data": mesh.data, "model": mesh.model},
    )
    return worker.run(job, LIMIT)


def counts(record: Record) -> dict[str, float]:
    """The numbers that grow with the layers."""
    facts = record.programs[0].facts
    assert facts is not None
    weights = float(record.notes[0].split()[0].replace(",", ""))
    return {
        "weights": weights,
        "caches": facts.arguments - weights,
        "results": facts.outputs,
        "temporaries": facts.temporaries,
        "collectives": sum(each.nbytes for each in facts.collectives),
        "count": sum(each.count for each in facts.collectives),
    }


def found(worker: Worker, mesh: Mesh, length: int, *, whole: bool, folder: Path) -> Found:
    layers = Sizes().layers
    records = [
        record_of(worker, mesh, length, n, folder) for n in ([layers] if whole else [FEW, MORE])
    ]
    batch = mesh.batch if length == STEP else mesh.data
    room = named(mesh.target).rates.memory or 0.0
    base: dict[str, Any] = {"title": mesh.title, "length": length, "batch": batch, "room": room}
    failed = next((record for record in records if not record.is_compiled), None)
    if failed is not None:
        return Found(**base, reason=f"{failed.outcome}: {failed.reason}", is_whole=whole)
    last = records[-1]
    numbers = counts(last)
    if not whole:
        few = counts(records[0])
        for name, number in numbers.items():
            each = max(0.0, number - few[name]) / (MORE - FEW)
            numbers[name] = number + (layers - MORE) * each
    facts = last.programs[0].facts
    assert facts is not None
    kinds = ", ".join(each.kind for each in facts.collectives)
    return Found(**base, **numbers, kinds=kinds, is_whole=whole)


def rows(results: Sequence[Found]) -> Iterator[str]:
    head = ("mesh", "tokens", "weights", "cache in", "results", "temporaries", "memory", "")
    yield _row([*head, "collectives", "their bytes", "layers compiled"])
    yield _row(["---", *["---:"] * 6, "---", *["---:"] * 2, "---"])
    for each in results:
        tokens = f"{each.batch} x {each.length}"
        how = f"all {Sizes().layers}" if each.is_whole else f"{FEW} and {MORE}"
        if each.reason:
            yield _row([each.title, tokens, *[""] * 5, each.reason, "", "", how])
            continue
        numbers = (each.weights, each.caches, each.results, each.temporaries, each.room)
        fits = "fits" if each.peak < each.room else f"needs {each.peak / 1e9:.1f} GB: does not fit"
        sizes = [f"{number / 1e9:.2f}" for number in numbers]
        called = f"{each.count:.0f} ({each.kinds})"
        moved = f"{each.collectives / 1e6:.1f} MB"
        yield _row([each.title, tokens, *sizes, fits, called, moved, how])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fill(results: Sequence[Found]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *rows(results), "", END + after]))


def kept() -> dict[tuple[str, int], Found]:
    """The last results, by mesh and length."""
    stored: Sequence[Mapping[str, Any]] = []
    if RESULTS.exists():
        stored = json.loads(RESULTS.read_text())
    return {(entry["title"], entry["length"]): Found(**entry) for entry in stored}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.meshes", description=__doc__)
    parser.add_argument("--targets", nargs="+", default=[mesh.target for mesh in MESHES])
    parser.add_argument("--tokens", nargs="+", type=int, default=[STEP])
    parser.add_argument("--whole", action="store_true", help="compile all layers")
    options = parser.parse_args()
    os.environ.setdefault("LIBTPU_INIT_ARGS", OPTIONS)
    results = kept()
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        for length in options.tokens:
            for mesh in MESHES:
                if mesh.target in options.targets:
                    one = found(worker, mesh, length, whole=options.whole, folder=Path(folder))
                    results[mesh.title, length] = one
                    print(one, flush=True)
                    RESULTS.write_text(
                        json.dumps([asdict(each) for each in results.values()], indent=1) + "\n"
                    )
    order = [mesh.title for mesh in MESHES]
    fill(sorted(results.values(), key=lambda each: (each.length, order.index(each.title))))


if __name__ == "__main__":
    main()
