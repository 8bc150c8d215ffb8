"""What a run covered and found, as lines of JSON while it runs and as text when it is over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from tests.fuzz.comparing import Finding
from tests.fuzz.graph import Graph


def described(seed: int, index: int, finding: Finding, small: Graph) -> dict[str, Any]:
    """A disagreement, with the shrunk graph as text and with its arrays."""
    return {
        "seed": seed,
        "index": index,
        "runtime": finding.runtime,
        "call": finding.call,
        "kind": finding.kind,
        "text": finding.text,
        "ops": [node.op for node in small.nodes],
        "model": onnx.printer.to_text(small.model),
        "inputs": {name: f"{a.dtype} {a.shape} {a.tolist()}" for name, a in small.feeds.items()},
    }


def covered(graph: Graph, dtypes: Mapping[str, str]) -> Iterable[str]:
    """What a graph counts for: operators, and operators with the dtype of their first input."""
    for node in graph.walk():
        yield f"op {node.op}"
        if node.inputs and node.inputs[0] in dtypes:
            yield f"typed {node.op} {dtypes[node.inputs[0]]}"
    yield f"opset {graph.opsets['']}"


def summary(counts: Counter[str], findings: list[dict[str, Any]]) -> str:
    """The text that a run ends with."""
    ops = [key for key in counts if key.startswith("op ")]
    typed = sum(key.startswith("typed ") for key in counts)
    opsets = sorted(int(key[6:]) for key in counts if key.startswith("opset "))
    nodes = sum(counts[key] for key in ops)
    lines = [
        f"{counts['graphs']} graphs of {nodes} nodes: {len(ops)} operators, {typed} pairs of "
        f"operator and dtype, opsets {opsets[0] if opsets else 0} to {opsets[-1] if opsets else 0}",
        *(f"{key}: {counts[key]}" for key in sorted(counts) if ": " in key),
        f"{len(findings)} disagreements",
    ]
    groups = Counter(
        f"{f['runtime']}: {f['kind']}: {' '.join(sorted(set(f['ops'])))}" for f in findings
    )
    lines += [f"{count:4d} {name}" for name, count in groups.most_common()]
    return "\n".join(lines)


def line(**content: Any) -> str:
    return json.dumps(content) + "\n"
