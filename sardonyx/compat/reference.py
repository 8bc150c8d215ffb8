"""`ReferenceEvaluator`: the interface of `onnx.reference`, on sardonyx."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx

from sardonyx.api import load
from sardonyx.backends.base import Backend
from sardonyx.compat.exceptions import RefusedCall, WrongType
from sardonyx.compat.reference_ops import classes_of, ops_for
from sardonyx.compat.reference_protos import Parts
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.results import fresh
from sardonyx.graph.model.model import Model

# Levels of `verbose` from which on nodes, and their results, are printed.
_NODES, _RESULTS = 2, 3


class ReferenceEvaluator:
    """Evaluates a model, graph, function or node as `onnx.reference.ReferenceEvaluator` does.

    It runs on NumPy unless you name another `backend` of `sardonyx.load`. `optimized` and
    `check_shape_annotations` have no effect.

    >>> import numpy as np
    >>> from onnx import parser
    >>> text = '<ir_version: 10, opset_import: ["": 22]> g (float[N] x) => (float[N] y) '
    >>> evaluator = ReferenceEvaluator(parser.parse_model(text + "{ h = Neg (x) y = Exp (h) }"))
    >>> evaluator.run(None, {"x": np.zeros(2, np.float32)})
    [array([1., 1.], dtype=float32)]
    >>> list(evaluator.run(None, {"x": np.zeros(2, np.float32)}, intermediate=True))
    ['', 'x', 'h', 'y']
    """

    def __init__(
        self,
        proto: Any,
        opsets: dict[str, int] | None = None,
        functions: Sequence[Any] | None = None,
        verbose: int = 0,
        new_ops: Sequence[Any] | None = None,
        optimized: bool = True,
        *,
        check_shape_annotations: bool = False,
        backend: str | Backend = "numpy",
    ) -> None:
        self.verbose = verbose
        self._backend = backend
        protos = [_proto_of(function) for function in functions or ()]
        is_model = isinstance(proto, (onnx.ModelProto, str, bytes, os.PathLike))
        if is_model and (opsets is not None or functions is not None):
            raise InvalidInput("A model has opsets and functions of its own: leave them out.")
        self._parts = Parts.of(proto, opsets, protos)
        self.proto_ = proto if self._parts.proto is None else self._parts.proto
        self._classes = classes_of(new_ops)
        self._functions = protos
        # By the attributes of a function; all other protos have none.
        self._models: dict[str, Model] = {}
        if not self._parts.takes_attributes:
            self._model_for({})

    # -- facts ------------------------------------------------------------------------------------

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, also of those with a default."""
        return list(self._parts.inputs)

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        return list(self._parts.outputs)

    @property
    def input_types(self) -> list[onnx.TypeProto] | None:
        """The types of the inputs, if the proto declares them."""
        return self._parts.input_types

    @property
    def output_types(self) -> list[onnx.TypeProto] | None:
        """The types of the outputs, if the proto declares them."""
        return self._parts.output_types

    @property
    def opsets(self) -> dict[str, int]:
        """The opset of each domain."""
        return dict(self._parts.opsets)

    def __str__(self) -> str:
        inputs, outputs = ", ".join(self.input_names), ", ".join(self.output_names)
        return f"{type(self).__name__}({inputs}) -> {outputs}"

    # -- calls ------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool = False,
    ) -> Any:
        """Return the named values, or all outputs with None; with `intermediate` all by name.

        A function needs its `attributes`, which may be an empty dict.
        """
        if self._parts.takes_attributes and attributes is None:
            raise WrongType("A function is run with its attributes: pass attributes={} if none.")
        if not isinstance(feed_inputs, Mapping):
            raise WrongType(f"The feeds are a {type(feed_inputs).__name__}: pass a dict by name.")
        model = self._model_for(attributes or {})
        names = list(self._parts.outputs) if output_names is None else list(output_names)
        known = self._parts.values
        if unknown := [name for name in names if name not in known]:
            raise RefusedCall(
                f"There is no value {unknown[0]!r:.200}; there are {', '.join(known)}."
            )
        feeds = self._feeds(model, feed_inputs)
        if intermediate or self.verbose >= _NODES:
            values = dict(zip(known, self._computed(model, list(known), feeds), strict=True))
            values = {"": None, **feeds, **values}
            self._print(values, feeds)
            return values if intermediate else [values[name] for name in names]
        return self._computed(model, names, feeds)

    def _computed(self, model: Model, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        return list(map(fresh, model.run(names, feeds)))

    def _feeds(self, model: Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the feeds that the model takes."""
        required = [info for info in model.inputs if info.container != "optional"]
        if missing := [info.name for info in required if info.name not in feeds]:
            raise RefusedCall(
                f"The inputs {missing} are missing from the feeds, which have {list(feeds)!r:.500}."
            )
        infos = (*model.inputs, *model.optional_inputs)
        return {info.name: feeds[info.name] for info in infos if info.name in feeds}

    def _model_for(self, attributes: Mapping[str, Any]) -> Model:
        key = repr(sorted(attributes.items()))
        if key not in self._models:
            source = self._parts.model_with(attributes)
            proto = self._parts.proto_of(source)
            nodes = [*proto.graph.node, *(n for f in proto.functions for n in f.node)]
            ops = ops_for(self._classes, nodes, self._run_params())
            self._models[key] = load(
                cast("Any", source), backend=self._backend, strict=False, ops=ops
            )
        return self._models[key]

    def _run_params(self) -> dict[str, Any]:
        return {
            "log": self._log,
            "opsets": self.opsets,
            "verbose": self.verbose,
            "new_ops": self._classes,
            "existing_functions": {},
            "evaluator_cls": type(self),
        }

    # -- texts ------------------------------------------------------------------------------------

    def _log(self, pattern: str, *arguments: Any) -> None:
        if self.verbose > 10:
            print(pattern % arguments)

    def _print(self, values: Mapping[str, Any], feeds: Mapping[str, Any]) -> None:
        """Print the nodes, and from a higher level on inputs and results."""
        if self.verbose >= _RESULTS:
            for name in self._parts.initializers:
                print(f" +C {name}: {_shown(values.get(name))}")
            for name in filter(feeds.__contains__, self._parts.inputs):
                print(f" +I {name}: {_shown(feeds[name])}")
        for node in self._parts.nodes if self.verbose >= _NODES else ():
            print(f"{node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)}")
            for name in node.output if self.verbose >= _RESULTS else ():
                print(f" + {name}: {_shown(values.get(name))}")


def _proto_of(function: Any) -> onnx.FunctionProto:
    if isinstance(function, ReferenceEvaluator):
        function = function.proto_
    if not isinstance(function, onnx.FunctionProto):
        raise WrongType(
            f"'functions' contains a {type(function).__name__}: pass FunctionProtos, or evaluators "
            "of them."
        )
    return function


def _shown(value: Any) -> str:
    if not isinstance(value, np.ndarray) or not value.size or value.dtype == object:
        return type(value).__name__ if not isinstance(value, np.ndarray) else f"{value.dtype}:()"
    return f"{value.dtype}:{value.shape} in [{value.min()}, {value.max()}]"
