"""Whether runtimes agree on a graph: first call, replay, and a call with other inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

import sardonyx
from tests.fuzz.evaluation import evaluate
from tests.fuzz.graph import INPUT, Array, Graph
from tests.fuzz.running import OURS, Run, loaded
from tests.fuzz.values import COPIES, Unstable, Value, parts
from tests.property.reference import Lacking

Expected = Sequence[Value]


@dataclass(frozen=True)
class Finding:
    """What a runtime found that it should not have."""

    runtime: str
    call: str
    kind: str
    text: str

    def is_like(self, other: Finding | None) -> bool:
        return other is not None and (self.runtime, self.kind) == (other.runtime, other.kind)

    def __str__(self) -> str:
        return f"{self.runtime}, {self.call}: {self.kind}: {self.text}"


Loading = Callable[[str, Graph], "Run | None"]


class Reference:
    """A graph with what it should compute, for its own inputs and for others."""

    def __init__(
        self, graph: Graph, copies: int = COPIES, values: Mapping[str, Value] | None = None
    ) -> None:
        self.graph = graph
        values = evaluate(graph, copies) if values is None else values
        self.dtypes = {name: v.arrays[0].dtype.name for name, v in values.items() if v.arrays}
        self.calls = [("first call", graph.feeds, [values[name] for name in graph.outputs])]
        if (other := self._other(graph, copies)) is not None:
            self.calls.append(("other inputs", *other))

    def _other(self, graph: Graph, copies: int) -> tuple[Mapping[str, Array], list[Value]] | None:
        """The same elements in another order; None where the graph is not valid for them."""
        other = with_other_inputs(graph)
        try:
            values = evaluate(other, copies)
        except (sardonyx.SardonyxError, Unstable):
            return None
        return other.feeds, [values[name] for name in graph.outputs]

    def finding(
        self, runtime: str, counts: Counter[str] | None = None, load: Loading = loaded
    ) -> Finding | None:
        """The first disagreement of a runtime, or None."""
        counts = Counter() if counts is None else counts
        call = "load"
        try:
            run = load(runtime, self.graph)
            if run is None:
                counts[f"{runtime}: lacking"] += 1
                return None
            for call, feeds, expected in self.calls:
                text = self._compared(runtime, run, call, feeds, expected, counts)
                if text is not None:
                    return Finding(runtime, call, "differs", text)
        except Lacking:
            counts[f"{runtime}: lacking"] += 1
            return None
        except Exception as error:
            return Finding(runtime, call, f"raises {_plain(error)}", str(error)[:400])
        return None

    def _compared(
        self,
        runtime: str,
        run: Run,
        call: str,
        feeds: Mapping[str, Array],
        expected: Expected,
        counts: Counter[str],
    ) -> str | None:
        before = {name: array.copy() for name, array in feeds.items()}
        first = [_copied(result) for result in run(feeds)]
        text = all_differ(first, expected)
        counts[f"{runtime}: compared"] += len(expected)
        if text is not None or runtime not in OURS:
            return text
        again = run(feeds)
        counts[f"{runtime}: replayed"] += len(expected)
        if text := all_differ(again, expected):
            return f"replay: {text}"
        if text := all_differ(again, [Value(result) for result in first]):
            return f"replay against the call before: {text}"
        for name, array in feeds.items():
            if not _same_bits(array, before[name]):
                return f"it wrote to its input {name}"
        return None


def _plain(error: Exception) -> str:
    """An error without what shrinking changes in it: names, numbers and shapes."""
    words = re.findall(r"[A-Za-z]{3,}", str(error))
    return " ".join([type(error).__name__, *words[:24]])


def all_differ(found: Sequence[Any], expected: Expected) -> str | None:
    """How results differ from what they should be, or None."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for index, (one, value) in enumerate(zip(found, expected, strict=True)):
        arrays = parts(one)
        if len(arrays) != len(value.arrays):
            return f"result {index} has {len(arrays)} items for {len(value.arrays)}"
        rows = zip(arrays, value.arrays, value.tolerances(), strict=True)
        for array, wanted, tolerance in rows:
            if text := differ(np.asarray(array), wanted, tolerance):
                return f"result {index}: {text}"
    return None


def differ(found: Array, wanted: Array, tolerance: Array | None) -> str | None:
    """How an array differs from another by more than a tolerance, or None."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{found.shape} for {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind in "Obiu":
        wrong = found != wanted
    else:
        one, other = found.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(one - other) <= (0 if tolerance is None else tolerance)
        wrong = ~(near | (one == other) | (np.isnan(one) & np.isnan(other)))
    if not np.any(wrong):
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    allowed = "" if tolerance is None else f" +- {tolerance[place]:.2g}"
    return (
        f"{int(np.sum(wrong))} of {wanted.size} {wanted.dtype} differ, at {place} "
        f"{found[place]!r} for {wanted[place]!r}{allowed}"
    )


def with_other_inputs(graph: Graph) -> Graph:
    """The graph with the elements of its inputs in another order."""
    leaves = [
        replace(leaf, array=_shuffled(leaf.array, leaf.name)) if leaf.kind == INPUT else leaf
        for leaf in graph.leaves
    ]
    return replace(graph, leaves=tuple(leaves))


def _shuffled(array: Array, name: str) -> Array:
    rng = np.random.default_rng(crc32(name.encode()))
    order = rng.permutation(array.size)
    return np.asarray(array.reshape(-1)[order].reshape(array.shape), array.dtype)


def _copied(result: Any) -> Any:
    return [np.array(a) for a in result] if isinstance(result, list) else np.array(result)


def _same_bits(one: Array, other: Array) -> bool:
    if one.dtype.kind == "O":
        return bool(np.all(one == other))
    return one.tobytes() == other.tobytes()
