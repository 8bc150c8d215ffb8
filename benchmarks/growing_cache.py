"""Two decoders write 256 tokens with a cache that grows by one at each call, as exporters leave it.

Run it: `python -m benchmarks.growing_cache`. Every call has sizes that no call had before; all
options of both runtimes are their defaults. The tokens must be the same. A token has to read all
matrices: how many GB of them a second stands beside what a copy of as many bytes reads and writes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from rich.table import Table

from benchmarks.models import HEAD_SIZE, HEADS, LAYERS
from benchmarks.processes import measured_apart
from benchmarks.results import console
from benchmarks.roofline import copy_rate

RUNTIMES = ("onnxruntime", "sardonyx")
TOKENS = 256
# The median leaves out the first tokens, at which a process compiles.
SETTLED = 8


class Decoder(NamedTuple):
    title: str
    layers: int
    heads: int
    head_size: int


DECODERS = {
    "gpt2_decode": Decoder("GPT-2", LAYERS, HEADS, HEAD_SIZE),
    "llama_decode": Decoder("small Llama, 8 heads, 2 of keys", 4, 2, 32),
}
Run = Callable[[Mapping[str, Any]], list[Any]]


class Task(NamedTuple):
    """What one process runs: prompts of these lengths, one after the other."""

    path: str
    network: str
    runtime: str
    batch: int
    prompts: list[int]
    tokens: int


def decode(task: Task) -> dict[str, Any]:
    """Greedy decoding after pasts of random numbers; the seconds of each token."""
    decoder = DECODERS[task.network]
    start = time.perf_counter()
    run, names, counts = _opened(task)
    loaded = time.perf_counter() - start
    written, seconds = [], []
    for prompt in task.prompts:
        rng = np.random.default_rng(prompt)
        shape = task.batch, decoder.heads, prompt, decoder.head_size
        caches = [n for n in names if n != "logits"]
        past = {
            name.replace("present", "past"): rng.standard_normal(shape, np.float32)
            for name in caches
        }
        token = np.full((task.batch, 1), 464 % 128)
        for _ in range(task.tokens):
            begun = time.perf_counter()
            results = dict(zip(names, run({"input_ids": token, **past}), strict=True))
            seconds.append(time.perf_counter() - begun)
            token = np.argmax(results["logits"][:, -1], axis=-1, keepdims=True)
            past = {name.replace("present", "past"): results[name] for name in caches}
            written += token.ravel().tolist()
    return {"loaded": loaded, "seconds": seconds, "tokens": written, **counts()}


def _opened(task: Task) -> tuple[Run, list[str], Callable[[], dict[str, int]]]:
    if task.runtime == "onnxruntime":
        import onnxruntime  # noqa: PLC0415

        session = onnxruntime.InferenceSession(task.path)
        names = [each.name for each in session.get_outputs()]
        return lambda feeds: session.run(None, feeds), names, dict
    import sardonyx  # noqa: PLC0415

    model = sardonyx.load(task.path, backend="jax")

    def counts() -> dict[str, int]:
        stats = model.stats()
        return {"compiles": stats.compiles, "traces": stats.traces}

    return lambda feeds: model.run(None, feeds), [each.name for each in model.outputs], counts


def export(network: str, folder: Path) -> Path:
    """The decoder's ONNX file, exported by torch if it is not there yet."""
    path = folder / f"{network}.onnx"
    if path.exists():
        return path
    if network in ("gpt2_decode",):
        from benchmarks import exports  # noqa: PLC0415

        return exports.export(network, folder)
    return _export_llama(path)


def _export_llama(path: Path) -> Path:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from benchmarks import exports  # noqa: PLC0415

    what = DECODERS["llama_decode"]
    torch.manual_seed(exports.SEED)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=8 * what.head_size,
        intermediate_size=688,
        num_hidden_layers=what.layers,
        num_attention_heads=8,
        num_key_value_heads=what.heads,
    )
    network = exports.Decoder(transformers.LlamaForCausalLM(config)).eval()
    parts = [f"{layer}.{part}" for layer in range(what.layers) for part in ("key", "value")]
    past = [torch.randn(2, what.heads, 7, what.head_size) for _ in parts]
    batch, length = exports.BATCH, exports.PAST
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(2, 1, dtype=torch.int64), *past),
            path,
            input_names=["input_ids", *(f"past.{part}" for part in parts)],
            output_names=["logits", *(f"present.{part}" for part in parts)],
            dynamic_shapes=({0: batch}, tuple({0: batch, 2: length} for _ in parts)),
            dynamo=True,
            verbose=False,
        )
    return path


def matrix_bytes(path: str) -> int:
    """The bytes of all weights that products read, some of them transposed before."""
    graph = onnx.load(path, load_external_data=False).graph
    readers = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "Transpose")]
    read = {name for node in readers for name in node.input}
    weights = [each for each in graph.initializer if each.name in read and len(each.dims) == 2]
    return sum(math.prod(each.dims) * np.dtype(np.float32).itemsize for each in weights)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growing_cache", description=__doc__)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    chosen = parser.parse_args()
    table = Table(title=f"{chosen.tokens} tokens with a cache that grows by one, default options")
    for column in ("decoder", "runtime"):
        table.add_column(column)
    columns = "ms a token", "ratio", "GB/s", "of a copy", "all, s", "ratio", "compiles", "traces"
    for column in columns:
        table.add_column(column, justify="right")
    for network, decoder in DECODERS.items():
        path = str(export(network, chosen.folder))
        size = matrix_bytes(path)
        copied = copy_rate(size)
        for batch, prompts, tokens in (
            (1, [5], chosen.tokens),
            (4, [5], chosen.tokens),
            (1, list(range(3, 123, 4)), max(chosen.tokens // 30, 2)),
        ):
            title = f"{decoder.title}, batch {batch}"
            title += f", {len(prompts)} prompts" if len(prompts) > 1 else ""
            for row in _rows(Task(path, network, "", batch, prompts, tokens), chosen.rounds):
                rate = size / (float(row[1]) * 1e-3)
                read = f"{rate / 1e9:.1f}", f"{rate / copied:.2f}"
                table.add_row(title, *row[:3], *read, *row[3:])
            table.add_section()
    console().print(table)


def _rows(task: Task, rounds: int) -> list[list[str]]:
    runs: dict[str, list[dict[str, Any]]] = {runtime: [] for runtime in RUNTIMES}
    for _ in range(rounds):
        for runtime in RUNTIMES:
            runs[runtime].append(
                measured_apart(
                    "benchmarks.growing_cache", "run", json.dumps(task._replace(runtime=runtime))
                )
            )
    expected = runs[RUNTIMES[0]][0]["tokens"]
    rows, base = [], None
    for runtime, found in runs.items():
        assert all(run["tokens"] == expected for run in found), f"{runtime} writes other tokens"
        each = min(statistics.median(run["seconds"][SETTLED:]) for run in found)
        total = min(sum(run["seconds"]) for run in found)
        base = base or (each, total)
        rows.append(
            [
                runtime,
                f"{each * 1e3:.2f}",
                f"{each / base[0]:.2f}",
                f"{total:.2f}",
                f"{total / base[1]:.2f}",
                str(found[0].get("compiles", "")),
                str(found[0].get("traces", "")),
            ]
        )
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(decode(Task(*json.loads(sys.argv[2])))))
    else:
        main()
