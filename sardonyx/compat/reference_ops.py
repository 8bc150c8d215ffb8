"""Operators that people wrote for onnx's reference evaluator, as operators of a model's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.compat.exceptions import WrongType, refused
from sardonyx.errors import InvalidInput
from sardonyx.ops.definition import Host, Op, Outputs, Unsized

# From the domain and the name of an operator to the class that runs it.
Classes: TypeAlias = Mapping[tuple[str, str], Any]


def classes_of(new_ops: Any) -> dict[tuple[str, str], Any]:
    """Return the classes by domain and name; of two for one operator the first counts."""
    from onnx.reference.op_run import OpRun, OpRunExpand  # noqa: PLC0415  (slow to import)

    classes: dict[tuple[str, str], Any] = {}
    for kind in new_ops or ():
        if not (isinstance(kind, type) and issubclass(kind, OpRun)):
            raise WrongType(
                f"'new_ops' contains {kind!r:.100}: pass classes derived from "
                "onnx.reference.op_run.OpRun."
            )
        # Sardonyx has the operators that such a class replaces by their bodies in the standard.
        if not issubclass(kind, OpRunExpand):
            classes.setdefault((kind.op_domain, kind.__name__), kind)
    return classes


def ops_for(
    classes: Classes, nodes: Iterable[onnx.NodeProto], run_params: Mapping[str, Any]
) -> list[Op[Any]]:
    """Return an operator for each class that the nodes use."""
    used: dict[tuple[str, str], Use] = {}
    for node in _every_node(nodes):
        key = node.domain, node.op_type
        if key in classes:
            use = used.setdefault(key, Use())
            use.inputs = max(use.inputs, len(node.input))
            use.attributes.update(dict.fromkeys(_attribute_names(node)))
    return [_op(classes[key], key, use, run_params) for key, use in used.items()]


@dataclass
class Use:
    """The most inputs that nodes of an operator have, and all attributes."""

    inputs: int = 0
    attributes: dict[str, None] = field(default_factory=dict)


def _attribute_names(node: onnx.NodeProto) -> Iterator[str]:
    for attribute in node.attribute:
        if attribute.HasField("g") or attribute.graphs:
            raise refused(
                f"The operator '{node.op_type}' of one's own has a subgraph, which is",
                "write it with If, Loop or Scan, or as a function of the model",
            )
        yield attribute.name


def _every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _every_node(graph.node)


def _op(kind: Any, key: tuple[str, str], use: Use, run_params: Mapping[str, Any]) -> Op[Any]:
    domain, name = key
    instances: dict[str, Any] = {}

    def call(xp: Backend, *inputs: Any, outputs: int, **attributes: Any) -> Any:
        passed = list(inputs)
        while passed and passed[-1] is None:
            passed.pop()
        # Texts of arrays can be equal, those of their elements are not.
        marked = repr([(k, _written(v)) for k, v in sorted(attributes.items())])
        marked = f"{marked} {len(passed)} {outputs}"
        if marked not in instances:
            instances[marked] = _instance(kind, key, len(passed), outputs, attributes, run_params)
        # They may write to their inputs.
        return _results(name, instances[marked].run(*map(_writable, passed)), outputs)

    # Its errors are those of the class that the user wrote.
    call.__module__ = kind.__module__
    _declare(call, name, use)
    return Op(call, domain)


def _declare(call: Callable[..., Any], name: str, use: Use) -> None:
    """Declare the inputs and attributes that nodes have as parameters of the function."""
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY
    inputs = [f"_input{i}" for i in range(use.inputs)]
    parameters = [
        inspect.Parameter("xp", positional),
        *(inspect.Parameter(each, positional, default=None) for each in inputs),
        inspect.Parameter("outputs", keyword),
        *(inspect.Parameter(each, keyword, default=None) for each in use.attributes),
    ]
    call.__name__ = call.__qualname__ = name
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {
        "xp": Backend,
        **dict.fromkeys(inputs, Array | None),
        "outputs": Outputs,
        **dict.fromkeys(use.attributes, Host),
        "return": tuple[Unsized, ...],
    }


def _instance(
    kind: Any,
    key: tuple[str, str],
    inputs: int,
    outputs: int,
    attributes: Mapping[str, Any],
    run_params: Mapping[str, Any],
) -> Any:
    domain, name = key
    written = {k: _written(v) for k, v in attributes.items() if v is not None}
    node = onnx.helper.make_node(
        name,
        [f"input{i}" for i in range(inputs)],
        [f"output{i}" for i in range(outputs)],
        domain=domain,
        **written,
    )
    return kind(node, dict(run_params))


def _written(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return onnx.numpy_helper.from_array(value)
    return list(value) if isinstance(value, tuple) else value


def _writable(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def _results(name: str, results: Any, outputs: int) -> tuple[Any, ...]:
    arrays = tuple(results)[:outputs]
    if len(arrays) < outputs or not all(isinstance(array, np.ndarray) for array in arrays):
        shown = ", ".join(type(each).__name__ for each in arrays) or "nothing"
        raise InvalidInput(
            f"The operator '{name}' returned {shown}, but the node has {outputs} outputs: return a "
            "tuple with an array for each."
        )
    return arrays
