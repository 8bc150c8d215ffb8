"""Binds a node's inputs and attributes to the parameters of an op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.graph.values.kinds import Value, static
from sardonyx.ops.definition import Definition, DType, Need, Parameter


class Misfit(ValueError):  # noqa: N818  (named for what is wrong, as the package's errors are)
    """A node does not fit the op's signature; the tracer adds which node."""


class Argument(NamedTuple):
    """One input of a node, and the parameter that it is bound to."""

    parameter: Parameter
    value: Value


class Bound(NamedTuple):
    """The arguments and attributes of one call of an op, before static arguments are fetched."""

    arguments: tuple[Argument, ...]
    attributes: Mapping[str, Any]


def bind(
    definition: Definition,
    inputs: Sequence[Value],
    attributes: Mapping[str, Any],
    outputs: int,
    dtype_of: Any,
) -> Bound:
    """Bind by position, then by name: some inputs of new opsets are attributes in old ones."""
    arguments: list[Argument] = []
    unbound = dict(attributes)
    for i, parameter in enumerate(definition.inputs):
        if parameter.variadic:
            if None in inputs[i:] and parameter.need is not Need.VALUE:
                raise Misfit(f"one of its inputs '{parameter.name}' is missing")
            arguments += [Argument(parameter, value) for value in inputs[i:]]
            break
        value = inputs[i] if i < len(inputs) else None
        if value is None and parameter.name in unbound:
            value = static(_as_array(unbound.pop(parameter.name)))
        if value is None and parameter.required and parameter.need is not Need.VALUE:
            raise Misfit(f"the input '{parameter.name}' is missing")
        arguments.append(Argument(parameter, value))
    keywords = _keywords(definition, unbound, dtype_of)
    if definition.counts_outputs:
        keywords["outputs"] = outputs
    return Bound(tuple(arguments), keywords)


def _keywords(
    definition: Definition, attributes: Mapping[str, Any], dtype_of: Any
) -> dict[str, Any]:
    """Return the attributes as the op's function takes them."""
    keywords: dict[str, Any] = {}
    for name, value in attributes.items():
        if name not in definition.attributes:
            raise Misfit(f"the attribute '{name}' has no meaning here")
        parameter = definition.attributes[name]
        if parameter.type != DType:
            keywords[name] = parameter.convert(value)
        elif value or parameter.required:  # 0 is ONNX's code for no type.
            keywords[name] = dtype_of(value)
    for name, parameter in definition.attributes.items():
        if name in keywords:
            continue
        if parameter.required:
            raise Misfit(f"the attribute '{name}' is missing")
        if parameter.type is float and parameter.default is not None:
            # In float32, as files hold attributes: a default of 0.1 equals a written 0.1.
            keywords[name] = float(np.float32(parameter.default))
    return {name: v for name, v in keywords.items() if name not in definition.ignored}


def _as_array(value: Any) -> Any:
    """Convert an attribute to the array that newer opsets take as an input."""
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return np.asarray(value, dtype=np.int64)
    return np.asarray(value, dtype=np.float32) if isinstance(value, float) else np.asarray(value)
