"""What a new size within a bucket costs over a repeated call, in microseconds.

Run it: `python -m benchmarks.new_sizes_of_buckets`. Small graphs, so that nothing hides the cost.
Each new size is followed by one more call of the size before it. Results are compared with NumPy's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import parser
from rich.table import Table

import sardonyx
from benchmarks.results import console

COUNT = 400
# Calls before those that are measured; the last ones have about the largest size, up to which
# everything is planned then.
FIRST = (33, 40, 36, 35, 41, 30, 34)
SMALLEST, LARGEST = 100, 700
ROUNDS = 3
# The bar for what a new size of a bucket may take more, in microseconds.
BAR = 50.0
CACHES = 24

HEAD = '<ir_version: 10, opset_import: ["" : 22]> '
ROWS = (
    HEAD + "g (float[b, n, 6] x) => (float[b, n, 6] y) <int64[1] axis = {1}> "
    "{ e = Exp(x) s = ReduceSum<keepdims = 1>(e, axis) d = Div(e, s) y = Softmax<axis = 1>(d) }"
)


def _decoder() -> str:
    """A graph that appends one position to each of many caches."""
    numbers = range(CACHES)
    inputs = ", ".join(f"float[1, 4, past, 8] c{i}" for i in numbers)
    outputs = ", ".join(f"float[1, 4, all, 8] o{i}" for i in numbers)
    nodes = " ".join(f"o{i} = Concat<axis = 2>(c{i}, x)" for i in numbers)
    return f"{HEAD} g (float[1, 4, 1, 8] x, {inputs}) => ({outputs}) {{ {nodes} }}"


class Case(NamedTuple):
    """A graph, the options that it is loaded with, and the inputs of a call of some size."""

    title: str
    graph: str
    options: dict[str, Any]
    inputs: Callable[[int], Sequence[Any]]


def _random(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def _on_jax(*shape: int) -> Any:
    import jax  # noqa: PLC0415

    return jax.block_until_ready(jax.numpy.asarray(_random(*shape)))


def _caches(size: int) -> list[Any]:
    return [_random(1, 4, 1, 8), *[_random(1, 4, size, 8)] * CACHES]


def cases() -> Iterator[Case]:
    """Yield what is measured: programs of buckets, and then functions of all sizes."""
    now: dict[str, Any] = {"compile": "now"}
    one, two, caches = {"n": [1024]}, {"b": [16], "n": [1024]}, {"past": [1024]}
    yield Case("bucket, one size", ROWS, {**now, "buckets": one}, lambda n: [_random(2, n, 6)])
    yield Case("bucket, JAX arrays", ROWS, {**now, "buckets": one}, lambda n: [_on_jax(2, n, 6)])
    of_both = {**now, "buckets": two}
    yield Case("bucket, two sizes", ROWS, of_both, lambda n: [_random(2 + n % 13, n, 6)])
    yield Case(f"bucket, {CACHES} caches", _decoder(), {**now, "buckets": caches}, _caches)
    yield Case("function, one size", ROWS, {}, lambda n: [_random(2, n, 6)])
    yield Case(f"function, {CACHES} caches", _decoder(), {}, _caches)


def seconds(model: sardonyx.Model, plain: sardonyx.Model, inputs: Sequence[Any]) -> float:
    """Return how long a call takes, and compare its results with those of another model."""
    start = time.perf_counter()
    results = model(*inputs)
    taken = time.perf_counter() - start
    expected = plain(*map(np.asarray, inputs))
    for result, other in zip(_listed(results), _listed(expected), strict=True):
        np.testing.assert_allclose(np.asarray(result), other, rtol=1e-5, atol=1e-6)
    return taken


def _listed(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (list, tuple)) else [results]


def measured(case: Case) -> tuple[float, float]:
    """Return the median microseconds of new sizes, and of repeated ones."""
    proto = parser.parse_model(case.graph)
    plain = sardonyx.load(proto, backend="numpy", buckets=None)
    found = []
    for round_ in range(ROUNDS):
        model = sardonyx.load(proto, backend="jax", **case.options)
        before = [*FIRST, *range(LARGEST - 5, LARGEST + 3)]
        for size in before:
            seconds(model, plain, case.inputs(size))
            time.sleep(0.02)
        sizes = np.random.default_rng(round_).permutation(range(SMALLEST, LARGEST - 5))[:COUNT]
        known = [*before, *map(int, sizes)]
        new, repeated = [], []
        for earlier, size in zip(known[len(before) - 1 :], known[len(before) :], strict=False):
            new.append(seconds(model, plain, case.inputs(size)))
            repeated.append(seconds(model, plain, case.inputs(earlier)))
        found.append((statistics.median(new) * 1e6, statistics.median(repeated) * 1e6))
    return min(found, key=lambda pair: pair[0] - pair[1])


def main() -> int:
    """Print the table; return 1 if a new size of a bucket costs more than the bar."""
    table = Table(title=f"Microseconds of a call, medians of {COUNT} sizes", title_justify="left")
    table.add_column("calls")
    for title in ("repeated", "new size", "more"):
        table.add_column(title, justify="right")
    is_above = False
    for case in cases():
        new, repeated = measured(case)
        table.add_row(case.title, f"{repeated:.0f}", f"{new:.0f}", f"{new - repeated:.0f}")
        is_above |= case.title.startswith("bucket") and new - repeated > BAR
    console().print(table)
    return int(is_above)


if __name__ == "__main__":
    sys.exit(main())
