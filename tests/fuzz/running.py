"""The runtimes that are compared, each as a function from a graph to a function of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sardonyx
from tests.fuzz.graph import Array, Graph
from tests.property.reference import Lacking, Refused, Session, newest_opset

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Any]]
NUMPY, JAX, STEPS = "numpy", "jax", "jax in steps"
ONNXRUNTIME, OPTIMIZED = "onnxruntime", "onnxruntime, optimized"
OURS = (NUMPY, JAX, STEPS)
# What a runtime raises where it does not run a model; anything else is a fault by itself.
REFUSALS = (sardonyx.SardonyxError, Refused)


def loaded(runtime: str, graph: Graph) -> Run | None:
    """A runtime's form of a graph; None where it has no kernels for it."""
    content = graph.model.SerializeToString()
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
    return lambda feeds: session.run(dict(feeds))
