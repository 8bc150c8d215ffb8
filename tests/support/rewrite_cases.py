"""Small models that a rewrite shortens, each with the steps that it should leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.graph.programs.program import Program
from tests.support.onnx_builders import model, value, weight
from tests.support.strict_backend import StrictBackend

Nodes = Sequence[onnx.NodeProto]


@dataclass(frozen=True)
class RewriteCase:
    """Nodes from `x` (and whatever other inputs) to `y`, and the titles of what runs of them."""

    name: str
    nodes: Nodes
    shape: Sequence[int]
    titles: Sequence[str]
    weights: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)
    opset: int = 18
    # The nodes' results that are outputs too.
    outputs: Sequence[str] = ("y",)

    def model(self, dtype: Any = np.float32) -> onnx.ModelProto:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs = [value(n, s, number) for n, s in {"x": self.shape, **self.others}.items()]
        weights = [weight(name, typed(content, dtype)) for name, content in self.weights.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        return model(self.nodes, inputs, outputs, weights, opset=self.opset)

    def arrays(self, dtype: Any = np.float32, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(seed)
        shapes = [self.shape, *self.others.values()]
        return [rng.normal(scale=2, size=shape).astype(dtype) for shape in shapes]

    def parameter(self) -> Any:
        return pytest.param(self, id=self.name)


def typed(content: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Floats of no particular type are of the model's own."""
    array = np.asarray(content)
    return array.astype(dtype) if array.dtype == np.float64 else array


class PlainJax(JaxBackend):
    """JAX as it is without a library of kernels; attention is fused, as where there is one."""

    fuses = False
    attends = True


class AttendingStrict(StrictBackend):
    attends = True


def without_kernels(backend: Backend) -> Backend:
    """A backend on which all is fused that the graph's own rewrites can fuse."""
    if backend.name == "cupy":
        return _plain_cupy(backend)
    own = {"jax": PlainJax, "strict": AttendingStrict}.get(backend.name)
    return backend if own is None else own()


@cache
def _plain_cupy(backend: Any) -> Backend:
    """CuPy without the epilogues of cuBLASLt; its class is imported where there is a GPU alone."""
    return type("PlainCupy", (type(backend),), {"fuses": False})(backend.device)


def working(program: Program) -> list[str]:
    """The titles of the steps that depend on the inputs; the others run once, ahead of a call."""
    titles = []
    for stage in program.stages:
        if stage.segment is not None:
            live = set(stage.segment.inputs)
            for step in stage.segment.steps:
                if live.intersection(step.reads):
                    live.update(step.results)
                    titles.append(step.title.rpartition("::")[2])
    return titles


def without_rewrites(proto: onnx.ModelProto, arrays: Sequence[Any], backend: Any) -> Any:
    """The outputs of a model that runs as it is written."""
    return sardonyx.load(proto, backend=backend, rewrites=False)(*arrays)


def close(found: Any, expected: Any, ulps: float) -> None:
    """Equal to some units in the last place of the largest number, with NaN where NaN is."""
    dtype = np.asarray(found).dtype
    found, expected = (np.asarray(each).astype(np.float64) for each in (found, expected))
    finite = np.abs(expected[np.isfinite(expected)])
    size = max(float(finite.max(initial=0.0)), 1.0)
    epsilon = float(np.spacing(np.asarray(1, dtype)).astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=0, atol=ulps * epsilon * size)
