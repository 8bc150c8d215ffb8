"""GPT-2 decodes 256 tokens; its keys and values are buffers that the graph writes into.

Run it: `python -m benchmarks.decoding`. The buffers are donated, so that each token's are written
where the last one's lie. Told are the time, the memory, and the bytes that are copied nevertheless.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.models import HEAD_SIZE, HEADS, LAYERS, TOKENS, caches
from benchmarks.results import console

SIZE = 384
# The first tokens, in which a process still settles, do not count for the growth of its memory.
SETTLED = 16
RUNTIMES = ("onnxruntime", "sardonyx", "sardonyx, donated")

Buffers = dict[str, Any]
# From a token, its position and the buffers to the logits and the buffers then.
Step = Callable[[Any, Any, Buffers], tuple[Any, Buffers]]


def decode(path: Path, runtime: str, tokens: int) -> dict[str, Any]:
    """Greedy decoding after a past of random numbers; what it took, token by token."""
    rng = np.random.default_rng(0)
    start = np.zeros((LAYERS * 2, 1, HEADS, SIZE, HEAD_SIZE), np.float32)
    start[..., :TOKENS, :] = rng.standard_normal(start[..., :TOKENS, :].shape, np.float32)
    step, buffers, address, in_use = _opened(path, runtime, list(start))
    token, written, seconds, moved = np.array([[464]]), [], [], 0
    memory: list[tuple[int, int]] = []
    for i in range(tokens):
        before = {address(buffer) for buffer in buffers.values()}
        begun = time.perf_counter()
        logits, buffers = step(token, np.array(TOKENS + i), buffers)
        token = np.argmax(np.asarray(logits)[:, -1], axis=-1, keepdims=True)
        seconds.append(time.perf_counter() - begun)
        moved += sum(b.nbytes for b in buffers.values() if address(b) not in before)
        written.append(int(token[0, 0]))
        memory.append((_resident(), in_use()))
    settled, last = memory[min(SETTLED, tokens) - 1], memory[-1]
    return {
        "seconds": statistics.median(seconds[1:]),
        "least": min(seconds[1:]),
        "tokens": written,
        "moved": moved // tokens,
        "resident": last[0],
        "growth": last[0] - settled[0],
        "arrays_growth": last[1] - settled[1],
    }


def _opened(path: Path, runtime: str, start: list[Any]) -> tuple[Step, Buffers, Any, Any]:
    """One token's step, the buffers, an array's address, and the bytes of all arrays now."""
    names, results = caches("past"), caches("present")
    if runtime == "onnxruntime":
        import onnxruntime  # noqa: PLC0415

        session = onnxruntime.InferenceSession(path)

        def run(token: Any, position: Any, buffers: Buffers) -> tuple[Any, Buffers]:
            feeds = {"input_ids": token, "position": position, **buffers}
            logits, *made = session.run(["logits", *results], feeds)
            return logits, dict(zip(names, made, strict=True))

        return run, dict(zip(names, start, strict=True)), lambda a: a.ctypes.data, lambda: 0

    import jax  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    model = sardonyx.load(path, backend="jax", compile="now")
    call = model.bind(donate="past.*") if runtime == "sardonyx, donated" else model

    def step(token: Any, position: Any, buffers: Buffers) -> tuple[Any, Buffers]:
        logits, *made = call(input_ids=token, position=position, **buffers)
        return logits, dict(zip(names, jax.block_until_ready(made), strict=True))

    placed = {name: jax.device_put(array) for name, array in zip(names, start, strict=True)}
    return (
        step,
        placed,
        lambda array: array.unsafe_buffer_pointer(),
        lambda: sum(array.nbytes for array in jax.live_arrays()),
    )


def copied_inside(program: str) -> int:
    """Bytes of results as large as a buffer that a compiled program makes besides its updates.

    `program` is XLA's text. An update in place is a fusion whose root scatters or updates a slice.
    """
    roots = dict(re.findall(r"^%?(\S+) \(.*?\n  ROOT \S+ = \S+ ([\w-]+)\(", program, re.M | re.S))
    made = re.compile(r" = \w+\[([\d,]+)\]\S* (copy|transpose|fusion|concatenate)\(.*")
    elements = HEADS * SIZE * HEAD_SIZE
    entry = program[program.index("\nENTRY ") :]
    total = 0
    for found in made.finditer(entry):
        if math.prod(map(int, found[1].split(","))) != elements:
            continue
        called = re.search(r"calls=%?([\w.-]+)", found[0])
        if not (called and roots.get(called[1]) in ("scatter", "dynamic-update-slice")):
            total += 4 * elements
    return total


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("--tokens", type=int, default=SIZE - TOKENS)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    given = parser.parse_args()
    from benchmarks.static_cache import FORMS, export  # noqa: PLC0415

    table = Table(title=f"GPT-2, {given.tokens} tokens after a past of {TOKENS}, batch 1")
    for column in ("cache written by", "runtime", "ms a token (least)", "copied a token, MB"):
        table.add_column(column)
    for column in ("in the program", "growth of memory, MB", "of arrays, MB", "memory, MB"):
        table.add_column(column, justify="right")
    for form in FORMS:
        for row in _rows(export(form, given.folder), given.tokens):
            table.add_row(form, *row)
        table.add_section()
    console().print(table)


def _rows(path: Path, tokens: int) -> Iterator[list[str]]:
    expected: list[int] = []
    for runtime in RUNTIMES:
        with tempfile.TemporaryDirectory() as dump:
            found = _in_its_own_process(path, runtime, tokens, dump)
            inside = [copied_inside(text) for text in _programs(dump)]
        expected = expected or found["tokens"]
        assert found["tokens"] == expected, f"{runtime} writes other tokens than onnxruntime"
        yield [
            runtime,
            f"{found['seconds'] * 1e3:.1f} ({found['least'] * 1e3:.1f})",
            f"{found['moved'] / 1e6:.1f}",
            f"{max(inside) / 1e6:.1f}" if inside else "",
            f"{found['growth'] / 1e6:.1f}",
            "" if runtime == "onnxruntime" else f"{found['arrays_growth'] / 1e6:.1f}",
            f"{found['resident'] / 1e6:,.0f}",
        ]


def _programs(dump: str) -> list[str]:
    paths = Path(dump).glob("*after_optimizations.txt")
    return [path.read_text() for path in paths]


def _in_its_own_process(path: Path, runtime: str, tokens: int, dump: str) -> dict[str, Any]:
    flags = f"--xla_dump_to={dump} {os.environ.get('XLA_FLAGS', '')}"
    command = [sys.executable, "-m", "benchmarks.decoding", "run", str(path), runtime, str(tokens)]
    ended = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XLA_FLAGS": flags},
    )
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(decode(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
    else:
        main()
