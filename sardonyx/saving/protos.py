"""The ModelProto of a loaded model, as it was written, and its present weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx.backends.dtypes import isdtype
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.proto_graphs import graphs_in
from sardonyx.graph.loading.tensors import decode
from sardonyx.graph.model.model import Model
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.values.mmap import content
from sardonyx.saving.tensors import fill


def weights_of(model: Model, params: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the initializers by name: the model's own, and the params in their place."""
    snapshot = model._shared.weights.now()
    weights = {name: content(snapshot.host(name)) for name in model.params}
    for name, value in params.items():
        if name not in weights:
            raise InvalidInput(
                f"The model has no initializer '{name}': its params are "
                f"{', '.join(list(weights)[:20]) or 'none'}."
            )
        weights[name] = _replacement(name, value, weights[name])
    return weights


def _replacement(name: str, value: Any, old: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    try:
        new = np.asarray(value)
    except Exception as error:
        raise InvalidInput(
            f"The param '{name}' is a {type(value).__name__}, which NumPy cannot read: pass an "
            "array, outside of jax.jit."
        ) from error
    if new.shape != old.shape or not _holds(old.dtype, new.dtype):
        raise InvalidInput(
            f"The param '{name}' is {short_name(new.dtype)}{list(new.shape)}, but the model has "
            f"{short_name(old.dtype)}{list(old.shape)}: cast or reshape it."
        )
    return new.astype(old.dtype, copy=False)


def _holds(dtype: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether a type has all numbers of another one of its kind, in which a model is trained."""
    are_alike = any(isdtype(dtype, k) and isdtype(narrow, k) for k in ("real floating", "integral"))
    return dtype == narrow or (are_alike and np.can_cast(narrow, dtype, "safe"))


def proto_of(source: Source) -> onnx.ModelProto:
    """Return the model as it was written; only its initializers may lack their data."""
    if not source.written:
        raise InvalidInput("The model has no ONNX file behind it: load or record it to save it.")
    proto = onnx.ModelProto()
    proto.ParseFromString(source.written)
    folder = None if source.file is None else source.file.parent
    for graph in graphs_in(proto):
        _take_in(graph, folder, is_main=graph is proto.graph)
    return proto


def _take_in(graph: Any, folder: Path | None, *, is_main: bool) -> None:
    """Replace data in other files by the data itself; that of initializers is written anew."""
    tensors = [] if is_main else list(getattr(graph, "initializer", ()))
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else []
            tensors += attribute.tensors
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            fill(tensor, content(decode(tensor, folder)))
