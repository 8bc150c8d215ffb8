"""`python -m tests.support.captured`: counts the segments that CuPy captures, and why not others.

The graphs are the exporters' models, those of the zoo and those of ONNX's suite; each call runs
four times. `--one-in N` takes fewer graphs of the last two, `--only` one of the three.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sardonyx
from sardonyx.backends.captures import Captures
from sardonyx.backends.cupy.backend import CupyBackend
from tests.support import official
from tests.support.nvrtc import some
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls
from tests.zoo.recording import recorded_graphs, restored

CALLS = 4


class CountingBackend(CupyBackend):
    """CuPy, which keeps what each model knows of its graphs, and its segments."""

    def __init__(self) -> None:
        super().__init__()
        self.captures: dict[int, Captures] = {}
        self.segments: list[Any] = []

    def bind(self, *arguments: Any, captures: Captures | None = None, **options: Any) -> Any:
        executable = super().bind(*arguments, captures=captures, **options)
        if captures is not None:
            self.captures[id(captures)] = captures
            self.segments.append(executable.run)
        return executable

    def taken(self) -> Counter[str]:
        """Return how many segments have a graph, or why they have none, and forget them."""
        found = Counter[str]()
        for captures in self.captures.values():
            found.update({_general(reason): n for reason, n in captures.refused.items()})
        graphs = [getattr(segment, "graphs", None) for segment in self.segments]
        found["captured"] = sum(g is not None and any(True for _ in g.last_used()) for g in graphs)
        self.captures, self.segments = {}, []
        return found


def _general(reason: str) -> str:
    """Return the reason without the numbers of one segment."""
    return re.sub(r"\b\d+\b", "N", reason)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.captured", description=__doc__)
    parser.add_argument("--one-in", type=int, default=1, metavar="N")
    parser.add_argument("--only", choices=KINDS)
    arguments = parser.parse_args()
    for kind in KINDS if arguments.only is None else (arguments.only,):
        graphs, total, backend = 0, Counter[str](), CountingBackend()
        for name, run in KINDS[kind](backend, arguments.one_in):
            graphs += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run()
            found = backend.taken()
            total.update(found)
            for reason in found:
                if reason != "captured" and "copies of a graph" not in reason:
                    print(f"{name}: {reason}", flush=True)
        print(f"\n{kind}: {graphs} graphs")
        for reason, count in total.most_common():
            print(f"{count:6}  {reason}", flush=True)


Runs = Iterator[tuple[str, Callable[[], Any]]]


def _exporters_models(backend: CountingBackend, one_in: int) -> Runs:
    for name in NAMES:
        model = sardonyx.load(FOLDER / f"{name}.onnx", backend=backend)
        calls = [feeds for feeds, _ in recorded_calls(name)]
        yield name, partial(_run_often, model, calls)


def _zoo(backend: CountingBackend, one_in: int) -> Runs:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for recorded in some(recorded_graphs(), one_in):
            graph = restored(recorded)
            path.write_bytes(graph.content)
            model = sardonyx.load(path, backend=backend)
            calls = [call.feeds for call in graph.calls]
            yield recorded.name, partial(_run_often, model, calls)


def _run_often(model: sardonyx.Model, calls: Sequence[Any]) -> None:
    for feeds in calls:
        for _ in range(CALLS):
            model.run(None, dict(feeds))


def _official_suite(backend: CountingBackend, one_in: int) -> Runs:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, ONNX_MODELS=folder),
        patch.object(official, "Twice", _Often),
    ):
        for case in official.cases():
            chosen = some([Path(case.name)], one_in)
            if case.name not in official.EXCLUDED and any(chosen):
                yield case.name, partial(_run_case, case, backend)


class _Often(official.Twice):
    def run(self, inputs: Any) -> Any:
        for _ in range(CALLS - 2):
            self.prepared.run(inputs)
        return super().run(inputs)


def _run_case(case: official.Case, backend: CountingBackend) -> None:
    try:
        official.run(case, backend)
    except unittest.SkipTest:
        return


KINDS = {"exporters": _exporters_models, "zoo": _zoo, "official": _official_suite}


if __name__ == "__main__":
    main()
