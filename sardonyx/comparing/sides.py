"""The two sides of a comparison: a model, or a session of onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from sardonyx.comparing.runtime_arrays import (
    from_ort_value,
    is_foreign,
    is_foreign_type,
    reason_of,
    to_ort_value,
)
from sardonyx.errors import BackendUnavailable, InvalidInput, SardonyxError
from sardonyx.graph.ir import Graph
from sardonyx.graph.model.interface import CallOptions
from sardonyx.graph.model.model import Model
from sardonyx.printable import printable
from sardonyx.saving.api import save


class Side(Protocol):
    """Computes values of a graph by name."""

    title: str
    # Why values were left out, by name.
    left_out: dict[str, str]

    def names(self) -> Sequence[str]:
        """Return the names of the values that it can compute, in the order of the graph."""

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return these values as NumPy arrays; without those that the library cannot return."""


class ModelSide:
    """Values of a model of this library."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph: Graph = model._source.graph
        self.title = model.backend
        self.left_out: dict[str, str] = {}
        # The same draws in each group of values.
        self._options = CallOptions(model._backend.key(0))

    def names(self) -> Sequence[str]:
        return [name for node in self.graph.nodes for name in node.outputs if name]

    def initializer(self, name: str) -> Any:
        """Return an initializer on the host; None if there is none of this name."""
        return self.model.params.host(name) if name in self.graph.initializers else None

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        form = self.model._forms.computing_once(tuple(names))
        taken = form.of_its_own(feeds)
        if self.model._backend.compiled:
            form.compiled(taken)
        found = form.call((), taken, self._options, to_numpy=True)
        form.release()
        return dict(zip(names, found, strict=True))


class SessionSide:
    """Outputs of a session of onnxruntime that the caller created."""

    title = "onnxruntime"

    def __init__(self, session: Any) -> None:
        self.session = session
        self.left_out: dict[str, str] = {}
        self._inputs = {info.name for info in session.get_inputs()}
        self._types = {info.name: info.type for info in session.get_outputs()}

    def names(self) -> Sequence[str]:
        return list(self._types)

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        taken = {n: _on_host(value) for n, value in feeds.items() if n in self._inputs}
        foreign = [n for n in names if is_foreign_type(self._types[n])]
        if any(map(is_foreign, taken.values())):
            return self._as_ort_values(names, taken)
        found = self._as_ort_values(foreign, taken) if foreign else {}
        plain = [n for n in names if n not in foreign]
        if plain:
            with _explained("run this model on these inputs"):
                found.update(zip(plain, self.session.run(plain, taken), strict=True))
        return found

    def _as_ort_values(self, names: Sequence[str], taken: Mapping[str, Any]) -> dict[str, Any]:
        """Run with values of onnxruntime, which are tensors only."""
        kept = [n for n in names if self._types[n].startswith("tensor(")]
        lists = [n for n, value in taken.items() if not isinstance(value, np.ndarray)]
        if lists:
            kept = []
        why = f"the input '{lists[0]}' is a sequence" if lists else "it is no tensor"
        for name in names:
            if name not in kept:
                self.left_out[name] = (
                    f"onnxruntime cannot return it beside {self._foreign_types(taken)}, as {why}"
                )
        if not kept:
            return {}
        runtime = _onnxruntime()
        with _explained("run this model on these inputs"):
            values = {name: to_ort_value(array, runtime) for name, array in taken.items()}
            found = self.session.run_with_ort_values(kept, values)
        return {n: from_ort_value(value) for n, value in zip(kept, found, strict=True)}

    def _foreign_types(self, taken: Mapping[str, Any]) -> str:
        types = {value.dtype.name for value in taken.values() if is_foreign(value)}
        types |= {text[7:-1] for text in self._types.values() if is_foreign_type(text)}
        return ", ".join(sorted(types))


class RuntimeSide:
    """All values of a model in onnxruntime: the model, saved, with these as outputs."""

    title = "onnxruntime"

    def __init__(self, model: Model, folder: Path, *, optimized: bool) -> None:
        self.left_out: dict[str, str] = {}
        self._folder = folder
        path = folder / "model.onnx"
        save(model, path, external=True)
        self._proto = onnx.load(path, load_external_data=False)
        self._optimized = optimized

    def names(self) -> Sequence[str]:
        return [name for node in self._proto.graph.node for name in node.output if name]

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        known = {info.name for info in proto.graph.output}
        proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
        ort = _onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if not self._optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(self._folder))
        content = proto.SerializeToString()
        with _explained("open this model"):
            session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        side = SessionSide(session)
        side.left_out = self.left_out
        return side.values(names, feeds)


def is_session(value: Any) -> bool:
    """Whether it is a session of onnxruntime."""
    return hasattr(value, "get_outputs") and hasattr(value, "get_inputs")


def _onnxruntime() -> Any:
    try:
        return import_module("onnxruntime")
    except ImportError:
        raise BackendUnavailable(
            "onnxruntime is not installed: install it, or compare with another backend."
        ) from None


@contextmanager
def _explained(task: str) -> Iterator[None]:
    """Raise what onnxruntime refuses to do as an error of this library."""
    try:
        yield
    except SardonyxError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"onnxruntime cannot {task}: {printable(reason_of(error), 300)}. Compare with another "
            "backend."
        ) from error


def _on_host(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
        return [_on_host(one) for one in value]
    try:
        return np.asarray(value.get() if hasattr(value, "get") else value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"An input cannot be passed to onnxruntime: {error}.") from None
