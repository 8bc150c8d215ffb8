"""Exports of fitted models on rows of features, as skl2onnx writes them, and data to fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from skl2onnx import to_onnx
from skl2onnx.common import data_types

from tests.zoo.entry import Call, Entry, Feeds

SKL2ONNX = "skl2onnx"
FEATURES = 4
KINDS: Mapping[str, Any] = {
    "float32": data_types.FloatTensorType,
    "float64": data_types.DoubleTensorType,
    "int64": data_types.Int64TensorType,
    "bool": data_types.BooleanTensorType,
    "object": data_types.StringTensorType,
}


# -- data -----------------------------------------------------------------------------------------


def grid(rows: int, features: int = FEATURES, seed: int = 0) -> np.ndarray:
    """Return multiples of 1/8, whose midpoints are the same in float32 and in float64."""
    drawn = np.random.default_rng(seed).normal(size=(rows, features))
    return (np.round(drawn * 8) / 8).astype(np.float32)


def target(x: np.ndarray) -> np.ndarray:
    """Return a positive number for each row."""
    return np.abs(x[:, 0] * 2 - x[:, 1] + np.sin(x[:, 2] * 3)) + 0.25


def classes(x: np.ndarray, count: int = 3) -> np.ndarray:
    """Return a class for each row, all about as frequent."""
    order = np.argsort(np.argsort(x[:, 0] - 0.5 * x[:, 1] + np.cos(x[:, 2]), kind="stable"))
    return order * count // len(x)


# -- exports --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A model to fit, and rows to call it with: a matrix, or a mapping of columns."""

    name: str
    fit: Callable[[], Any]
    calls: Sequence[Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    options_of: Mapping[type, Mapping[str, Any]] = field(default_factory=dict)
    # Opsets of ai.onnx and of ai.onnx.ml.
    opset: tuple[int, int] | None = None
    # Whether the file has the results of the model's own functions.
    sourced: bool = True
    # Inputs of other types than the calls'.
    types: Sequence[tuple[str, Any]] | None = None
    onnxruntime_differs: str = ""

    def entry(self) -> Entry:
        return Entry(self.name, SKL2ONNX, self._write, onnxruntime_differs=self.onnxruntime_differs)

    def _write(self, path: Path) -> Sequence[Call]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.fit()
            results = [self._results(model, rows) for rows in self.calls]
        options: dict[Any, Any] = {kind: dict(each) for kind, each in self.options_of.items()}
        if self.options:
            options[id(model)] = dict(self.options)
        proto = to_onnx(
            model,
            initial_types=list(self.types or types_of(self.calls[0])),
            options=options or None,
            target_opset=self.opset and {"": self.opset[0], "ai.onnx.ml": self.opset[1]},
        )
        onnx.save(proto, path)
        feeds = [feeds_of(rows) for rows in self.calls]
        expected = [each and in_types_of(proto, model, each) for each in results]
        return [Call(*each) for each in zip(feeds, expected, strict=True)]

    def _results(self, model: Any, rows: Any) -> Sequence[np.ndarray] | None:
        if not self.sourced or not len(rows):
            return None
        return results_of(model, rows)


def types_of(rows: Any) -> Sequence[tuple[str, Any]]:
    """Return the inputs of a model: `X`, or one for each column of a data frame."""
    if not hasattr(rows, "columns"):
        return [("X", KINDS[rows.dtype.name]([None, *rows.shape[1:]]))]
    return [(str(name), KINDS[rows[name].dtype.name]([None, 1])) for name in rows.columns]


def feeds_of(rows: Any) -> Feeds:
    if not hasattr(rows, "columns"):
        return {"X": rows}
    return {str(name): rows[name].to_numpy().reshape(-1, 1) for name in rows.columns}


def results_of(model: Any, rows: Any) -> Sequence[np.ndarray] | None:
    """Return the model's own results, in the types that files have."""
    if hasattr(model, "predict_proba"):
        results = [model.predict(rows), model.predict_proba(rows)]
    elif hasattr(model, "decision_function"):
        scores = model.decision_function(rows)
        # Files have the scores of both of two classes.
        both = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
        results = [model.predict(rows), both]
    elif hasattr(model, "predict"):
        results = [model.predict(rows).reshape(len(rows), -1)]
    else:
        results = [model.transform(rows)]
    return [_dense(each) for each in results]


def _dense(result: Any) -> Any:
    if isinstance(result, list):
        return [_dense(each) for each in result]
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def in_types_of(proto: onnx.ModelProto, model: Any, results: Sequence[Any]) -> Sequence[Any]:
    """Return results in the types of the file's outputs; models compute in float64."""
    types = [each.type for each in proto.graph.output]
    labels = getattr(model, "classes_", ())
    return [_in_type(kind, each, labels) for kind, each in zip(types, results, strict=False)]


def _in_type(kind: onnx.TypeProto, result: Any, labels: Sequence[Any]) -> Any:
    element = kind.sequence_type.elem_type
    if isinstance(result, list):
        return [_in_type(element, each, labels) for each in result]
    if element.HasField("map_type"):
        rows = result.astype(np.float32).tolist()
        return [dict(zip(np.asarray(labels).tolist(), row, strict=True)) for row in rows]
    return result.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
