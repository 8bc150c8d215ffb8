"""Where runtimes differ on several nodes together, and are meant to: the second table of it.

tests/property/disagreements has those that one node shows. Each entry's example must still differ,
and docs/disagreements.md lists every entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.fuzz.comparing import Finding
from tests.fuzz.graph import Graph, Node
from tests.property.disagreements.entry import SARDONYX


@dataclass(frozen=True)
class Joint:
    """What differs between which operators, why, who is right, and a model that shows it."""

    operators: tuple[str, ...]
    what: str
    why: str
    right: str
    # Whether a shrunk graph shows this.
    applies: Callable[[Graph], bool]
    model: str
    feeds: Mapping[str, np.ndarray]


def _trains(node: Node) -> bool:
    return node.op == "BatchNormalization" and bool(node.attributes.get("training_mode"))


ENTRIES: tuple[Joint, ...] = (
    Joint(
        ("BatchNormalization",),
        "`training_mode` where a running mean or variance is read elsewhere, too, or is fed: "
        "onnxruntime writes the new one over it.",
        "An operator does not change its inputs.",
        SARDONYX,
        lambda graph: any(map(_trains, graph.walk())),
        """<ir_version: 10, opset_import: ["": 15]>
        g (float[2,1,3] x, float[1] one) => (float[2,1,3] y) {
            y, m, v = BatchNormalization <training_mode = 1> (x, one, one, one, one)
        }""",
        {
            "x": np.arange(6, dtype=np.float32).reshape(2, 1, 3),
            "one": np.ones(1, np.float32),
        },
    ),
    Joint(
        ("Resize",),
        "`sizes` that are an input, of a length that the model names and does not say: onnxruntime "
        "takes them for none, and refuses the model.",
        "Their length is known at the call.",
        SARDONYX,
        lambda graph: graph.symbolic and any(node.op == "Resize" for node in graph.walk()),
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[n,n,n,n] x, int64[m] sizes) => (float[a,b,c,d] y) {
            y = Resize (x, , , sizes)
        }""",
        {"x": np.ones((1, 1, 1, 1), np.float32), "sizes": np.array([1, 1, 2, 2])},
    ),
    Joint(
        ("Cast",),
        "float16 that is converted to float32 right after it was computed: onnxruntime, which "
        "computes it in float32, does not round it.",
        "The value between the two is float16.",
        SARDONYX,
        lambda graph: False,  # What float16 may be off by covers it.
        """<ir_version: 10, opset_import: ["": 21]>
        g (float16[1] x) => (float[1] y) {
            e = Exp(x)
            y = Cast <to = 1> (e)
        }""",
        {"x": np.array([0.7], np.float16)},
    ),
)


def is_settled(graph: Graph, finding: Finding) -> bool:
    """Whether the page explains what onnxruntime does otherwise on a shrunk graph."""
    return finding.runtime.startswith("onnxruntime") and any(e.applies(graph) for e in ENTRIES)
