"""Runs a file here, in onnxruntime and against its source, and says whether the results agree."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime import GraphOptimizationLevel as Level

import sardonyx
from tests.support.agreement import COARSE, EXACT, Difference, of_all
from tests.zoo.entry import Call, Entry

BACKENDS = ("jax", "numpy")
# A source computes with other kernels than onnxruntime, and sums in another order.
SOURCE = 2e-3
# Of a message, in characters.
LONGEST = 200


@dataclass
class Verdict:
    """What became of one model; `problem` is empty where all that could be compared agrees."""

    name: str
    exporter: str
    # Whether it computes with fewer than 32 bits.
    coarse: bool = False
    # "" if the exporter wrote a file and onnxruntime runs it, else what it says.
    not_exported: str = ""
    not_in_onnxruntime: str = ""
    # What is said here of a file that onnxruntime does not run either.
    not_here: str = ""
    problem: str = ""
    worst: float = 0.0
    # Over the source's own results: None where the source gave none.
    worst_of_source: float | None = None
    # Why onnxruntime's results are not those to compare with, where they are not.
    onnxruntime_differs: str = ""
    # Why neither onnxruntime's nor the source's are those that the standard asks for.
    standard_differs: str = ""
    operators: int = 0
    backends: Sequence[str] = ()

    @property
    def is_as_source(self) -> bool:
        """Whether results are the source's; where a file parts from it, so does onnxruntime."""
        allowed = COARSE if self.coarse else SOURCE
        return self.worst_of_source is not None and self.worst_of_source <= allowed


def judged(
    entry: Entry, path: Path, backends: Sequence[str] = BACKENDS
) -> tuple[Verdict, Sequence[Call]]:
    """Export a model and compare all of its calls."""
    verdict = Verdict(
        entry.name,
        entry.exporter,
        entry.coarse,
        onnxruntime_differs=entry.onnxruntime_differs,
        standard_differs=entry.standard_differs,
        backends=list(backends),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = entry.write(path)
    except Exception as error:  # Exporters have exceptions of their own for what they cannot do.
        verdict.not_exported = first_line(_cause(error), path)
        return verdict, ()
    verdict.operators = len(operators_of(path))
    compare(verdict, entry, path, calls)
    return verdict, calls


def compare(verdict: Verdict, entry: Entry, path: Path, calls: Sequence[Call]) -> None:
    """Fill in how the results of a file agree with onnxruntime's and with the source's."""
    try:
        plain = in_onnxruntime(path, calls, Level.ORT_DISABLE_ALL)
        fused = in_onnxruntime(path, calls, Level.ORT_ENABLE_ALL)
    except Exception as error:  # Likewise.
        verdict.not_in_onnxruntime = first_line(error, path)
        plain = fused = None
    for backend in verdict.backends:
        try:
            ours = in_sardonyx(path, calls, backend)
        except Exception as error:  # Whatever a library raises is a verdict on this model alone.
            said = f"{backend}: {first_line(error, path)}"
            if plain is None and isinstance(error, sardonyx.SardonyxError):
                verdict.not_here = said  # The exporter wrote a file that nothing runs.
            else:
                verdict.problem = said
            return
        if plain is not None and fused is not None:
            agreed = of_all(plain, fused, ours, COARSE if entry.coarse else EXACT)
            verdict.worst = max(verdict.worst, agreed.worst)
            if agreed.why and not (entry.onnxruntime_differs or entry.standard_differs):
                verdict.problem = f"{backend}: {agreed.why}"
        _against_source(verdict, entry, calls, ours, plain)


def _against_source(
    verdict: Verdict, entry: Entry, calls: Sequence[Call], ours: list[Any], plain: list[Any] | None
) -> None:
    known = [i for i, call in enumerate(calls) if call.expected is not None]
    if not known:
        return
    expected = [list(calls[i].expected or ()) for i in known]
    results = [list(ours[i]) for i in known]
    # Where the file itself parts from its source, so does onnxruntime.
    others = expected if plain is None else [list(plain[i]) for i in known]
    found: Difference = of_all(expected, others, results, COARSE if entry.coarse else SOURCE)
    verdict.worst_of_source = max(verdict.worst_of_source or 0.0, found.worst)
    if entry.standard_differs:
        return
    if found.why and (plain is None or entry.onnxruntime_differs):
        verdict.problem = verdict.problem or f"against the source: {found.why}"


def in_onnxruntime(path: Path, calls: Sequence[Call], level: Level) -> list[Any]:
    """Return the results of each call in onnxruntime, at a level of optimization."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(call.feeds)) for call in calls]


def in_sardonyx(path: Path, calls: Sequence[Call], backend: str) -> list[Any]:
    """Return the results of each call here: of the second time, when a recording is replayed."""
    model = sardonyx.load(path, backend=backend, compile="now")
    for _ in range(2):
        results = [model.run(None, dict(call.feeds)) for call in calls]
    return results


def operators_of(path: Path) -> list[str]:
    """Return the operators of a file, those of its functions and inner graphs included."""
    model = onnx.load(path, load_external_data=False)
    names: set[str] = set()

    def visit(nodes: Sequence[onnx.NodeProto]) -> None:
        for node in nodes:
            names.add(f"{node.domain}::{node.op_type}" if node.domain else node.op_type)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    visit(graph.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    return sorted(names)


def _cause(error: BaseException) -> BaseException:
    """Return the error from which others were raised: torch's own only name its steps."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def first_line(error: BaseException, path: Path) -> str:
    """Return what an error says, without what differs from machine to machine."""
    line = f"{type(error).__name__}: {error}".splitlines()[0]
    line = line.replace(str(path), "the file").replace(str(path.parent), "the folder")
    line = re.sub(r"0x[0-9a-f]{6,}", "0x...", line)
    line = re.sub(r"/\S*/site-packages/", "", line)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
