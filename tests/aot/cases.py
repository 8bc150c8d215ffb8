"""What is compiled for TPUs and GPUs: operators, operators by type, exporters' models, networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.defs import OpSchema

from sardonyx.graph.standard.types import dtype_of_type, number_of
from sardonyx.targets.jobs import LOADED, ModelJob
from sardonyx.targets.names import named
from tests.ops.microsoft.small_nodes import NODES
from tests.support.official import node_tests
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls
from tests.zoo.recording import recorded_graphs, restored

# Operators that run subgraphs, or move values: their own cases show all that types change.
_NOT_BY_TYPE = frozenset({"If", "Loop", "Scan", "SequenceMap", "ImageDecoder"})


@dataclass(frozen=True, eq=False)
class Case:
    """A model and the inputs of a call; both are made when they are asked for."""

    name: str
    made: Callable[[], tuple[onnx.ModelProto, Mapping[str, Any]]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def job(self, target: str, form: str = LOADED) -> ModelJob:
        model, inputs = self.made()
        return ModelJob(
            model.SerializeToString(), named(target), form, inputs=inputs, options=self.options
        )


# -- ONNX's node cases ----------------------------------------------------------------------------


def node_cases() -> Iterator[Case]:
    """All cases of ONNX's own suite that consist of nodes."""
    for test in node_tests():
        if test.data_sets:
            yield _of_test(test)


@cache
def operators() -> tuple[Case, ...]:
    """One case for each operator: of the standard's its shortest, of onnxruntime's a small node."""
    first: dict[Any, Any] = {}
    for test in node_tests():
        key = tuple(sorted({(n.domain, n.op_type) for n in test.model.graph.node}))
        if test.data_sets and not test.name.endswith("_expanded"):
            first.setdefault(key, test)
    standard = (_of_test(test) for test in first.values())
    microsoft = (Case(f"{s.domain}.{s.op}", _of_small(s)) for s in NODES)
    return (*standard, *microsoft)


def _of_test(test: Any) -> Case:
    return Case(test.name, lambda: (test.model, _inputs(test)))


def _of_small(small: Any) -> Callable[[], tuple[onnx.ModelProto, Mapping[str, Any]]]:
    return lambda: (small.model(), small.feeds)


def _inputs(test: Any) -> dict[str, Any]:
    pairs = zip(test.model.graph.input, test.data_sets[0][0], strict=True)
    return {i.name: _value(each) for i, each in pairs}


def _value(each: Any) -> Any:
    """Return what a call takes for an input of a case, some of which are ONNX's own messages."""
    if isinstance(each, onnx.TensorProto):
        return numpy_helper.to_array(each)
    if isinstance(each, onnx.SequenceProto):
        return numpy_helper.to_list(each)
    if isinstance(each, onnx.OptionalProto):
        return numpy_helper.to_optional(each)
    return each


# -- operators by type ----------------------------------------------------------------------------


@cache
def operators_by_type() -> tuple[Case, ...]:
    """For each operator of the standard, its case with each type that its schema allows."""
    seen, found = set(), []
    for test in node_tests():
        nodes = test.model.graph.node
        if len(nodes) != 1 or not test.data_sets or nodes[0].op_type in _NOT_BY_TYPE:
            continue
        key = nodes[0].domain, nodes[0].op_type
        if key not in seen and _has_arrays(test):
            seen.add(key)
            found += list(_by_type(test))
    return tuple(found)


def _has_arrays(test: Any) -> bool:
    inputs = _inputs(test).values()
    return all(isinstance(each, np.ndarray) and each.dtype != object for each in inputs)


def _by_type(test: Any) -> Iterator[Case]:
    schema = _schema_of(test.model)
    for constraint in schema.type_constraints:
        inputs = [i for i, each in enumerate(_formal_inputs(test, schema)) if each == constraint]
        allowed = sorted(t for t in constraint.allowed_type_strs if t.startswith("tensor("))
        if not inputs or len(allowed) < 2:
            continue
        for text in allowed:
            dtype = dtype_of_type(text)
            if dtype is not None and dtype.kind != "O":
                name = f"{schema.name}-{constraint.type_param_str}-{dtype.name}"
                yield Case(name, lambda d=dtype, c=constraint: _retyped(test, schema, c, d))


def _schema_of(model: onnx.ModelProto) -> OpSchema:
    node = model.graph.node[0]
    version = next(o.version for o in model.opset_import if o.domain == node.domain)
    return onnx.defs.get_schema(node.op_type, version, node.domain)


def _formal_inputs(test: Any, schema: OpSchema) -> list[Any]:
    """Return the constraint of each input that the node has, or None."""
    constraints = {each.type_param_str: each for each in schema.type_constraints}
    node = test.model.graph.node[0]
    formal = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(node.input))]
    return [
        constraints.get(f.type_str) if n else None for f, n in zip(formal, node.input, strict=True)
    ]


def _retyped(
    test: Any, schema: OpSchema, constraint: Any, dtype: np.dtype[Any]
) -> tuple[onnx.ModelProto, Mapping[str, Any]]:
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    graph, (node,) = model.graph, model.graph.node
    of_type = _formal_inputs(test, schema)
    inputs = {n for n, each in zip(node.input, of_type, strict=True) if each is constraint}
    for value in graph.input:
        if value.name in inputs:
            value.type.tensor_type.elem_type = number_of(dtype)
    # Types of outputs follow from those of the inputs.
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    del graph.output[:]
    graph.output.extend(outputs)
    with np.errstate(all="ignore"):
        arrays = {
            name: value.astype(dtype) if name in inputs else value
            for name, value in _inputs(test).items()
        }
    return model, arrays


# -- models ---------------------------------------------------------------------------------------


def exporters_models() -> Iterator[Case]:
    """The models of `tests/models`, with their first call."""
    for name in NAMES:
        yield Case(name, lambda name=name: _recorded(name))


def _recorded(name: str) -> tuple[onnx.ModelProto, Mapping[str, Any]]:
    return onnx.load(FOLDER / f"{name}.onnx"), recorded_calls(name)[0][0]


def networks() -> Iterator[Case]:
    """The zoo's graphs, with their first call."""
    for path in recorded_graphs():
        name = f"{path.parent.name}-{path.name.removesuffix('.onnx.xz')}"
        yield Case(name, lambda path=path: _restored(path))


def _restored(path: Path) -> tuple[onnx.ModelProto, Mapping[str, Any]]:
    graph = restored(path)
    return onnx.load_from_string(graph.content), graph.calls[0].feeds
