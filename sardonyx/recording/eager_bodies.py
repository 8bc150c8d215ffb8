"""Calls on arrays of operators whose subgraphs are Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends import backend_of, find
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.shared import Options
from sardonyx.recording.active import BoundCall, recording_into
from sardonyx.recording.emission import body_of
from sardonyx.recording.recorder import GraphRecorder

# DLPack's number for memory of the host.
_CPU = 1


def run_with_bodies(call: BoundCall) -> Sequence[Any]:
    """Run a call: its bodies are recorded, and the arrays that they read become inputs."""
    operator = call.operator
    recorder = GraphRecorder({operator.domain: operator.opset}, arrays_are_inputs=True)
    with recording_into(recorder):
        symbols = recorder.call(call)
    proto = body_of(recorder, symbols)
    source = load_source(proto)
    audit(source, strict=True)
    arrays = [array for array, symbol in recorder.constants.values() if symbol._array is None]
    foreign = next((a for a in arrays if not isinstance(a, np.ndarray)), None)
    backend = HOST if foreign is None else backend_for(foreign)
    outputs = Model(source, backend, Options(compile=None))(*arrays)
    return (outputs,) if len(symbols) == 1 else tuple(outputs)


def backend_for(array: Any) -> Backend:
    """Return the backend that computes with an array; torch's and the like are borrowed."""
    if hasattr(array, "__array_namespace__") or not hasattr(array, "__dlpack_device__"):
        return backend_of(array)
    if type(array).__module__.partition(".")[0] in ("jax", "jaxlib", "cupy", "sardonyx"):
        return backend_of(array)
    return HOST if int(array.__dlpack_device__()[0]) == _CPU else find()
