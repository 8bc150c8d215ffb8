"""Random graphs on all runtimes; and that the fuzzer finds what is wrong, and shrinks it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import sardonyx
from tests.fuzz.building import built
from tests.fuzz.comparing import Reference, all_differ
from tests.fuzz.disagreements import ENTRIES, Joint
from tests.fuzz.evaluation import evaluate
from tests.fuzz.graph import INITIALIZER, Graph, Leaf, Node
from tests.fuzz.report import summary
from tests.fuzz.running import JAX, NUMPY, ONNXRUNTIME, STEPS, WRITTEN, Run, loaded
from tests.fuzz.shrinking import shrunk
from tests.fuzz.values import Value
from tests.fuzz.working import Plan, holds, run_one, supervise
from tests.property.reference import Refused, Session

# -- graphs of every kind -------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_runtimes_agree_on_random_graphs(part: int) -> None:
    plan = Plan(
        seed=10, every={NUMPY: 1, ONNXRUNTIME: 1, JAX: 12, STEPS: 40, WRITTEN: 8}, shrink=20
    )
    counts: Counter[str] = Counter()
    findings = [
        found
        for index in range(20 * part, 20 * part + 20)
        for found in run_one(plan, index, counts)
    ]
    assert not findings, "\n\n".join(f"{f['text']}\n{f['model']}\n{f['inputs']}" for f in findings)
    assert counts["graphs"] > 16
    assert counts[f"{ONNXRUNTIME}: compared"] > 60


@pytest.mark.slow
def test_runtimes_agree_on_many_random_graphs(tmp_path: Path) -> None:
    # A number of graphs, not a span of time: on a faster machine it must not become another test.
    outcome = supervise(Plan(seed=11, shrink=20), 300, 1500, tmp_path)
    text = summary(outcome.counts, outcome.findings)
    assert outcome.counts["graphs"] > 290, text
    assert not outcome.findings, text
    assert not outcome.broken, text
    assert sum(key.startswith("op ") for key in outcome.counts) > 100, text


def test_a_seed_and_a_number_name_a_graph() -> None:
    one, again, other = (built(*pair)[0] for pair in ((3, 5), (3, 5), (3, 6)))
    texts = [onnx.printer.to_text(graph.model) for graph in (one, again, other)]
    assert texts[0] == texts[1] != texts[2]
    for name, array in one.feeds.items():
        np.testing.assert_array_equal(array, again.feeds[name])


# -- that it would find something -----------------------------------------------------------------


def wrongly_loaded(runtime: str, graph: Graph) -> Run | None:
    """As if Tanh were off by a hundred-thousandth, about a hundred times what float32 is."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "Tanh":
            output = node.outputs[0]
            nodes.append(replace(node, outputs=(f"{output}_right",)))
            nodes.append(Node("Mul", (f"{output}_right", "factor"), (output,)))
        else:
            nodes.append(node)
    factor = Leaf("factor", np.array(1.00001, np.float32), INITIALIZER)
    return loaded(runtime, replace(graph, nodes=tuple(nodes), leaves=(*graph.leaves, factor)))


def chain() -> Graph:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    w = np.eye(4, dtype=np.float32) * 0.5
    nodes = (
        Node("MatMul", ("x", "w"), ("a",), scale=16),
        Node("Exp", ("a",), ("b",)),
        Node("Tanh", ("a",), ("c",)),
        Node("Add", ("b", "c"), ("d",)),
        Node("Transpose", ("d",), ("e",)),
    )
    leaves = (Leaf("x", x), Leaf("w", w, INITIALIZER))
    return Graph({"": 18}, leaves, nodes, ("e", "b"))


def test_a_wrong_operator_is_found_and_the_graph_shrunk_to_it() -> None:
    graph = chain()
    assert Reference(graph).finding(NUMPY) is None
    finding = Reference(graph).finding(NUMPY, load=wrongly_loaded)
    assert finding is not None
    assert finding.kind == "differs"
    small = shrunk(graph, lambda g: holds(g, finding, wrongly_loaded), seconds=20)
    assert [node.op for node in small.nodes] == ["Tanh"]
    assert all(leaf.array.size == 1 for leaf in small.leaves)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tolerances_follow_what_a_graph_magnifies(dtype: str) -> None:
    """1 / (exp(x) - 1) of a small x loses what exp(x), near 1, cannot hold."""
    one, x = np.ones(1, dtype), np.full(1, 2.0**-4, dtype)
    nodes = (
        Node("Exp", ("x",), ("a",)),
        Node("Sub", ("a", "one"), ("b",)),
        Node("Reciprocal", ("b",), ("c",)),
    )
    values = evaluate(Graph({"": 18}, (Leaf("x", x), Leaf("one", one)), nodes, ("c",)))
    relative = [float(values[n].tolerances()[0][0] / values[n].data[0]) for n in "abc"]
    eps = float(np.finfo(dtype).eps)
    assert 4 * eps < relative[0] < 100 * eps
    assert relative[1] > 8 * relative[0]
    assert relative[2] > 4 * relative[0]


def test_exact_values_allow_no_difference() -> None:
    x = np.array([[0.25, -1.5], [3.0, 2.25]], np.float32)
    nodes = (Node("MatMul", ("x", "x"), ("a",), scale=16), Node("Floor", ("a",), ("b",)))
    values = evaluate(Graph({"": 18}, (Leaf("x", x),), nodes, ("b",)))
    assert values["a"].exact
    assert values["b"].exact
    moved = np.nextafter(values["a"].data, np.float32(9))
    assert all_differ([moved], [values["a"]]) is not None


# -- the table of disagreements -------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "-".join(entry.operators))
def test_an_entry_s_example_still_differs(entry: Joint) -> None:
    content = parser.parse_model(entry.model).SerializeToString()
    ours = sardonyx.load(content, backend="numpy").run(None, dict(entry.feeds))
    try:
        feeds = {name: array.copy() for name, array in entry.feeds.items()}
        theirs = Session(content, entry.optimized).run(feeds)
    except Refused:
        return
    assert all_differ(theirs, [Value(np.asarray(array)) for array in ours]) is not None
