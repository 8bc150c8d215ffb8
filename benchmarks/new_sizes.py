"""Calls of MobileNetV2 and BERT-base, each with a batch or a length that no call had before.

Run it: `python -m benchmarks.new_sizes`. Each size is called once, in random order; then all sizes
are called again, in the same order. The ratio is a size's first call over its fastest repeated one.
A process has one first call of each size, which other work on the machine may delay: `--starts`
says how many processes are measured, runtimes in turn, of which each time is the least.
All options of both runtimes are their defaults, and the results are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from benchmarks.models import VOCABULARY, Feeds
from benchmarks.processes import measured_apart
from benchmarks.results import console

RUNTIMES = ("onnxruntime", "sardonyx")
COUNT = 100
ROUNDS = 2
STARTS = 2
# So many sizes that miss a bar are named.
MOST_NAMED = 4
# The bars: the ratio of the first calls, and of those from the tenth size on.
SETTLED, EARLY_BAR, BAR = 9, 3.0, 1.5
# Of the largest magnitude, in float32.
TOLERANCE = 1e-4
# Seconds without a compile in the background, after which there will be none.
QUIET = 5.0


class Series(NamedTuple):
    """Sizes of one dimension of a network, and a call's inputs for one of them."""

    title: str
    network: str
    sizes: range
    feeds: Callable[[int], Feeds]


def _images(batch: int) -> Feeds:
    rng = np.random.default_rng(batch)
    return {"pixel_values": rng.standard_normal((batch, 3, 224, 224), np.float32)}


def _sentences(batch: int, length: int) -> Feeds:
    """Sentences of unequal length, so that the mask has work to do."""
    rng = np.random.default_rng((batch, length))
    ids = rng.integers(0, VOCABULARY["bert"], (batch, length))
    lengths = rng.integers(length // 2, length, (batch, 1), endpoint=True)
    mask = (np.arange(length) < lengths).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


SERIES = {
    "images": Series("MobileNetV2, batch", "mobilenet_v2", range(1, 1 + COUNT), _images),
    "sentences": Series(
        "BERT-base of 8 tokens, batch", "bert_base", range(1, 1 + COUNT), lambda n: _sentences(n, 8)
    ),
    "lengths": Series(
        "BERT-base, length", "bert_base", range(8, 8 + COUNT), lambda n: _sentences(1, n)
    ),
}


class Task(NamedTuple):
    series: str
    runtime: str
    folder: str
    most: int


def run(task: Task) -> dict[str, Any]:
    """The seconds of each size's first call, and of its fastest repeated one."""
    series = SERIES[task.series]
    path = Path(task.folder) / f"{series.network}.onnx"
    sizes = np.random.default_rng(3).permutation(series.sizes).tolist()[: task.most]
    call, settle = (_onnxruntime if task.runtime == "onnxruntime" else _sardonyx)(path)
    first, results = _timed(call, series, sizes)
    counts = settle()
    rounds = [_timed(call, series, sizes)[0] for _ in range(ROUNDS)]
    # Only now: memory that another runtime gave back costs the next new sizes some page faults.
    expected = dict(_timed(_onnxruntime(path)[0], series, sizes)[1])
    for size, outputs in results:
        for output, other in zip(outputs, expected[size], strict=True):
            error = float(np.abs(output - other).max() / np.abs(other).max())
            assert error <= TOLERANCE, f"size {size} is off by {error:.1e} of the largest"
    repeated = [min(times) for times in zip(*rounds, strict=True)]
    return {"sizes": sizes, "first": first, "repeated": repeated, **counts}


def _timed(
    call: Callable[[Feeds], Sequence[Any]], series: Series, sizes: Sequence[int]
) -> tuple[list[float], list[tuple[int, Sequence[Any]]]]:
    seconds, results = [], []
    for size in sizes:
        feeds = series.feeds(size)
        start = time.perf_counter()
        outputs = call(feeds)
        seconds.append(time.perf_counter() - start)
        results.append((size, outputs))
    return seconds, results


def _onnxruntime(
    path: Path,
) -> tuple[Callable[[Feeds], Sequence[Any]], Callable[[], dict[str, int]]]:
    import onnxruntime  # noqa: PLC0415

    session = onnxruntime.InferenceSession(path)
    return lambda feeds: session.run(None, feeds), dict


def _sardonyx(path: Path) -> tuple[Callable[[Feeds], Sequence[Any]], Callable[[], dict[str, int]]]:
    import sardonyx  # noqa: PLC0415

    model = sardonyx.load(path, backend="jax")

    def settle() -> dict[str, int]:
        """Wait until nothing compiles in the background any more."""
        before, after = None, model.stats()
        while before is None or after.compiles != before.compiles:
            time.sleep(QUIET)
            before, after = after, model.stats()
        counts = "compiles", "traces", "interpreted"
        return {name: getattr(after, name) for name in counts}

    return lambda feeds: model.run(None, feeds), settle


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_sizes", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--most", type=int, default=COUNT, help="sizes in each series")
    parser.add_argument("--starts", type=int, default=STARTS, help="processes of each runtime")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    chosen = parser.parse_args()
    from benchmarks.exports import export  # noqa: PLC0415

    title = "A new size over the same size again: median, largest, and how many miss"
    table = Table(title=f"{title}; the least of {chosen.starts} processes")
    table.add_column("series")
    table.add_column("runtime")
    for column in (
        *("2 to 9", f"above {EARLY_BAR:g}", "10 on", f"above {BAR:g}"),
        *("all first, s", "all again, s", "compiles", "traces", "interpreted"),
    ):
        table.add_column(column, justify="right")
    for name in chosen.series:
        export(SERIES[name].network, chosen.folder)
        tasks = [Task(name, runtime, str(chosen.folder), chosen.most) for runtime in RUNTIMES]
        starts = [
            [measured_apart("benchmarks.new_sizes", "run", json.dumps(task)) for task in tasks]
            for _ in range(chosen.starts)
        ]
        for runtime, each in zip(RUNTIMES, zip(*starts, strict=True), strict=True):
            table.add_row(SERIES[name].title, runtime, *cells(least(each)))
        table.add_section()
    console().print(table)


def least(starts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The least times of several processes, and the largest counts.

    >>> both = [{"sizes": [8], "first": [n], "repeated": [5 - n], "traces": n} for n in (2, 1)]
    >>> least(both)
    {'sizes': [8], 'first': [1], 'repeated': [3], 'traces': 2}
    """
    found = dict(starts[0])
    for name in starts[0]:
        values = [start[name] for start in starts]
        if name in ("first", "repeated"):
            found[name] = [min(each) for each in zip(*values, strict=True)]
        elif name != "sizes":
            found[name] = max(values)
    return found


def cells(times: dict[str, Any]) -> list[str]:
    """The ratios of the first calls, by their place in the series; then totals and counts."""
    pairs = zip(times["first"], times["repeated"], strict=True)
    ratios = [(a / b, size) for (a, b), size in zip(pairs, times["sizes"], strict=True)]
    cells = []
    # The very first call loads and prepares the weights; `benchmarks.networks` measures it.
    for part, bar in ((ratios[1:SETTLED], EARLY_BAR), (ratios[SETTLED:], BAR)):
        missed = [str(size) for ratio, size in part if ratio > bar]
        names = f": {', '.join(missed)}" if 0 < len(missed) <= MOST_NAMED else ""
        median = statistics.median(ratio for ratio, _ in part)
        cells += [f"{median:.2f} ({max(part)[0]:.2f})", f"{len(missed)} of {len(part)}{names}"]
    cells += [f"{sum(times[kind]):.1f}" for kind in ("first", "repeated")]
    return cells + [str(times.get(kind, "")) for kind in ("compiles", "traces", "interpreted")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(run(Task(*json.loads(sys.argv[2])))))
    else:
        main()
