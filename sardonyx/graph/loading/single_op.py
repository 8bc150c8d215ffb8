"""A graph of one node, for trying an operator by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo
from sardonyx.graph.standard.schema import refuse_future, signature
from sardonyx.graph.standard.types import type_name


def single_node(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    domain: str,
    opset: int,
    outputs: int,
) -> Source:
    """A model that is nothing but this operator; an input that is None is left out."""
    refuse_future(domain, opset, "the call")
    known = signature(op_type, domain, opset)
    names = ["" if value is None else _input_name(known, i) for i, value in enumerate(inputs)]
    results = tuple(f"output{i}" for i in range(outputs))
    given = {name: _readable(name, value, known) for name, value in attributes.items()}
    node = Node(op_type, domain, "", "", tuple(names), results, given)
    graph = Graph(
        op_type,
        tuple(_declared(name, v) for name, v in zip(names, inputs, strict=True) if name),
        tuple(ValueInfo(name, None, None, None) for name in results),
        (node,),
    )
    return Source(
        graph, {"": onnx.defs.onnx_opset_version(), domain: opset}, {}, onnx.IR_VERSION, {}
    )


def _declared(name: str, value: Any) -> ValueInfo:
    """An input of any type; a list of arrays is a sequence."""
    is_sequence = isinstance(value, list) and value and hasattr(value[0], "dtype")
    kind = f"seq({type_name(np.dtype(value[0].dtype))})" if is_sequence else None
    return ValueInfo(name, kind, None, None)


def _input_name(known: Any, index: int) -> str:
    if known is None or index >= len(known.inputs) or known.inputs[index].variadic:
        return f"input{index}"
    return str(known.inputs[index].name)


def _readable(name: str, value: Any, known: Any) -> Any:
    try:
        return _attribute(name, value, known)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"The attribute '{name}' cannot be {value!r}: {error}.") from None


def _attribute(name: str, value: Any, known: Any) -> Any:
    """A Python value as a file would hold it, by the type the operator's schema gives it."""
    kind = known.attributes.get(name) if known is not None else None
    if kind is not None and kind.name in ("TENSOR", "SPARSE_TENSOR"):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)):
        convert: Any = float if kind is not None and kind.name == "FLOATS" else (lambda v: v)
        return tuple(convert(_scalar(one)) for one in value)
    if kind is not None and kind.name == "FLOAT":
        return float(value)
    if isinstance(value, (type, np.dtype)):
        return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value))
    if isinstance(value, (bool, int, float, str, np.generic)):
        return _scalar(value)
    raise InvalidInput(f"The attribute '{name}' cannot be a {type(value).__name__}.")


def _scalar(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, bool) else value
