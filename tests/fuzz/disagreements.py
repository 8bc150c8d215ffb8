"""Where runtimes differ on several nodes together, and are meant to: the second table of it.

tests/property/disagreements has those that one node shows. Each entry's example must still differ,
and docs/disagreements.md lists every entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.fuzz.comparing import Finding
from tests.fuzz.evaluation import evaluate
from tests.fuzz.graph import Graph, Node
from tests.fuzz.running import ONNXRUNTIME, OPTIMIZED, loaded
from tests.property.disagreements.entry import SARDONYX
from tests.property.reference import Refused


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
    # Whether onnxruntime's optimizations bring it about.
    optimized: bool = False


def _trains(node: Node) -> bool:
    return node.op == "BatchNormalization" and bool(node.attributes.get("training_mode"))


def _normalizes_doubles(graph: Graph) -> bool:
    operators = {node.op for node in graph.walk()}
    steps = {"Pow", "ReduceMean", "Add", "Sqrt", "Div"}
    doubles = any(leaf.array.dtype == np.float64 for leaf in graph.leaves)
    return doubles and steps <= operators <= steps | {"Sub", "Mul", "Cast"}


def _grows_its_state(graph: Graph) -> bool:
    """Whether a state of a Scan ends in another shape than it began with."""
    values = evaluate(graph)
    scans = [node for node in graph.nodes if node.op == "Scan"]
    # zip ends with the shorter of both, and scanned inputs come after all states.
    return any(
        np.shape(values[before].data) != np.shape(values[after].data)
        for node in scans
        for before, after in zip(
            node.inputs[: len(node.inputs) - node.attributes["num_scan_inputs"]],
            node.outputs,
            strict=False,
        )
    )


def _recurs_beyond_numbers(graph: Graph) -> bool:
    if {node.op for node in graph.walk()}.isdisjoint(("GRU", "LSTM", "RNN")):
        return False
    values = evaluate(graph).values()
    return any(
        isinstance(v.data, np.ndarray)
        and v.data.dtype.kind == "f"
        and not np.isfinite(v.data).all()
        for v in values
    )


ENTRIES: tuple[Joint, ...] = (
    Joint(
        ("BatchNormalization",),
        "`training_mode` with a running mean or variance that another node reads, or that the call "
        "passes: onnxruntime overwrites it with the new one.",
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
        "`sizes` as an input whose length is a named dimension: onnxruntime treats `sizes` as "
        "absent and raises an error.",
        "The length is known at the call.",
        SARDONYX,
        lambda graph: graph.symbolic and any(node.op == "Resize" for node in graph.walk()),
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[n,n,n,n] x, int64[m] sizes) => (float[a,b,c,d] y) {
            y = Resize (x, , , sizes)
        }""",
        {"x": np.ones((1, 1, 1, 1), np.float32), "sizes": np.array([1, 1, 2, 2])},
    ),
    Joint(
        ("AveragePool", "LpPool", "MaxPool"),
        "`ceil_mode` with a last window that begins in the padding: onnxruntime drops this window "
        "but counts it in shape inference. If a shape then does not fit, it raises an error.",
        "Windows that begin in the padding at the end are ignored.",
        SARDONYX,
        lambda graph: any(node.attributes.get("ceil_mode") for node in graph.walk()),
        """<ir_version: 10, opset_import: ["": 11]>
        g (float[1,1,7] x, float[3] y) => (float[1,1,3] z) {
            m = MaxPool <kernel_shape = [3], pads = [1, 2], strides = [3], ceil_mode = 1> (x)
            z = Add (m, y)
        }""",
        {"x": np.ones((1, 1, 7), np.float32), "y": np.ones(3, np.float32)},
    ),
    Joint(
        ("MatMul", "Mul", "Div"),
        "float64, a product scaled by a constant: onnxruntime fuses the two nodes and keeps the "
        "factor in float32.",
        "The result has the precision of its type.",
        SARDONYX,
        lambda graph: {"MatMul"} < {node.op for node in graph.walk()} <= {"MatMul", "Mul", "Div"},
        """<ir_version: 10, opset_import: ["": 19]>
        g (double[1,1] x) => (double[1,1] z) <double factor = {0.1}> {
            y = MatMul (x, x)
            z = Mul (y, factor)
        }""",
        {"x": np.ones((1, 1))},
        optimized=True,
    ),
    Joint(
        ("Add", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub"),
        "float64, a normalization written with these operators: onnxruntime fuses it and replaces "
        "the epsilon of the model by 1e-5.",
        "The epsilon is the model's.",
        SARDONYX,
        _normalizes_doubles,
        """<ir_version: 10, opset_import: ["": 14]>
        g (double[1,2] x) => (double[1,2] z)
        <double two = {2}, double epsilon = {0.001}, double[2] scale = {1, 1}> {
            square = Pow (x, two)
            mean = ReduceMean <axes = [-1]> (square)
            shifted = Add (mean, epsilon)
            root = Sqrt (shifted)
            y = Div (x, root)
            z = Mul (y, scale)
        }""",
        {"x": np.array([[1.0, -1.0]])},
        optimized=True,
    ),
    Joint(
        ("Scan",),
        "A state that takes another shape in the first iteration and has it from then on: "
        "onnxruntime refuses it.",
        "It has the same shape in each iteration, as the standard requires.",
        SARDONYX,
        _grows_its_state,
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[1] state, float[2,3] x) => (float[n] y) {
            y = Scan <num_scan_inputs = 1, body = b (float[] s, float[] row) => (float[] t) {
                t = Add (s, row)
            }> (state, x)
        }""",
        {"state": np.ones(1, np.float32), "x": np.ones((2, 3), np.float32)},
    ),
    Joint(
        ("GRU", "LSTM", "RNN"),
        "Infinities: onnxruntime makes the input of an activation the greatest finite number, so "
        "that Softsign is 1 where inf / inf is NaN, and Relu is no infinity.",
        "Nothing is clipped without the attribute `clip`.",
        SARDONYX,
        _recurs_beyond_numbers,
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[1,1,1] x, float[1,4,1] w) => (float[a,b,c] h) {
            y, h = LSTM <hidden_size = 1, activations = ["Sigmoid", "Softsign", "Tanh"]> (x, w, w)
        }""",
        {"x": np.full((1, 1, 1), np.inf, np.float32), "w": np.ones((1, 4, 1), np.float32)},
    ),
    Joint(
        ("Cast",),
        "A float16 result that is cast to float32 at once: onnxruntime computes in float32 and "
        "does not round to float16.",
        "The value between the two operators is float16.",
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
    if not finding.runtime.startswith(ONNXRUNTIME):
        return False
    optimized = finding.runtime == OPTIMIZED
    if optimized and finding.call == "load" and _loads_without_optimizations(graph):
        return True
    return any(e.applies(graph) for e in ENTRIES if optimized or not e.optimized)


def _loads_without_optimizations(graph: Graph) -> bool:
    """Whether only onnxruntime's optimizations refuse a graph: then the graph is valid."""
    try:
        return loaded(ONNXRUNTIME, graph) is not None
    except Refused:
        return False
