"""The runtimes that are compared, each as a function from a graph to a function of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sardonyx
from tests.fuzz.graph import Array, Graph
from tests.property.reference import Lacking, Refused, Session, newest_opset
from tests.support.writing_jax import WritingJax

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Any]]
NUMPY, JAX, STEPS, WRITTEN = "numpy", "jax", "jax in steps", "jax, written out"
ONNXRUNTIME, OPTIMIZED = "onnxruntime", "onnxruntime, optimized"
OURS = (NUMPY, JAX, STEPS, WRITTEN)
# What onnxruntime says of valid models that its kernels were not written for.
LIMITS = (
    "Subgraph must have the shape set for all outputs",
    "mode only supports",
    "has unknown shape",
    "No corresponding Numpy type",
)


def loaded(runtime: str, graph: Graph) -> Run | None:
    """A runtime's form of a graph; None where it has no kernels for it."""
    content = graph.model.SerializeToString()
    if runtime == WRITTEN:
        return _written_out(content)
    if runtime in OURS:
        backend = "numpy" if runtime == NUMPY else "jax"
        model = sardonyx.load(content, backend=backend, jit=runtime != STEPS)
        return lambda feeds: model.run(None, dict(feeds))
    if graph.opsets[""] > newest_opset(""):
        return None
    try:
        session = Session(content, optimized=runtime == OPTIMIZED)
    except Lacking:
        return None
    return lambda feeds: _of_onnxruntime(session, feeds)


def _written_out(content: bytes) -> Run:
    model = sardonyx.load(content, backend=WritingJax(), compile="background")

    def run(feeds: Feeds) -> list[Any]:
        model.run(None, dict(feeds))
        model.compile(dict(feeds))
        return model.run(None, dict(feeds))

    return run


def _of_onnxruntime(session: Session, feeds: Feeds) -> list[Any]:
    try:
        # It may write to its inputs; see the table of disagreements.
        return session.run({name: array.copy() for name, array in feeds.items()})
    except Refused as refusal:
        if any(limit in str(refusal) for limit in LIMITS):
            raise Lacking(str(refusal)) from None
        raise
