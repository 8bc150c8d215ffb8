"""The signature of every operator: from the standard's schema, or from the op's own parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import starmap, zip_longest
from typing import Any

from sardonyx.graph.standard import operators
from sardonyx.graph.standard.operators import AttrType, Signature, Slot
from sardonyx.ops import OPS
from sardonyx.ops.definition import Body, Definition, DType, Floats, Host, Ints, Parameter, Strings
from sardonyx.ops.microsoft.default_domain import is_beside_the_standard
from sardonyx.ops.microsoft.types import Type, types_of

_KINDS: Mapping[Any, AttrType] = {
    int: AttrType.INT,
    float: AttrType.FLOAT,
    str: AttrType.STRING,
    Ints: AttrType.INTS,
    Floats: AttrType.FLOATS,
    Strings: AttrType.STRINGS,
    DType: AttrType.INT,
    Host: AttrType.TENSOR,
    Body: AttrType.GRAPH,
}
_MANY = 2**31 - 1


def signature_of(op_type: str, domain: str, opset: int) -> Signature | None:
    """Return the signature of an operator at `opset`, or None if nothing defines it."""
    return operators.signature(op_type, domain, opset) or _own(op_type, domain, opset)


@cache
def _own(op_type: str, domain: str, opset: int) -> Signature | None:
    """Return the signature of an operator of sardonyx that the standard does not have."""
    op = OPS.get((domain, op_type))
    is_standard = operators.newest_version(domain) is not None
    if op is None or (is_standard and not is_beside_the_standard(op_type, domain, opset)):
        return None
    definition = op.at(opset)
    inputs, results = types_of(op_type) or ((), ())
    required = [each.name for each in definition.attributes.values() if each.required]
    return Signature(
        tuple(starmap(_slot, zip_longest(definition.inputs, inputs))),
        tuple(_results(definition, results)),
        {name: _KINDS[each.type] for name, each in definition.attributes.items()},
        frozenset(required),
        _bounds(definition),
        (1, _MANY if definition.counts_outputs else definition.outputs),
        deprecated=False,
    )


def _bounds(definition: Definition) -> tuple[int, int]:
    inputs = definition.inputs
    least = max((i + 1 for i, each in enumerate(inputs) if each.required), default=0)
    return least, _MANY if any(each.variadic for each in inputs) else len(inputs)


def _slot(parameter: Parameter, type_: Type | None) -> Slot:
    """Return the slot of an input; without a type, the op itself refuses those it does not have."""
    name = parameter.name
    variable, allowed = (name, None) if type_ is None else (type_.name, type_.allowed)
    is_optional = not parameter.required
    return Slot(name, variable, allowed, is_optional, parameter.variadic, homogeneous=False)


def _results(definition: Definition, types: Sequence[Type]) -> Iterator[Slot]:
    """Yield the slots of the results; the type of one that has none is unknown."""
    if definition.counts_outputs:
        yield Slot("results", "results", None, optional=True, variadic=True, homogeneous=False)
        return
    names = map("result{}".format, range(definition.outputs))
    for name, type_ in zip_longest(names, types):
        variable, allowed = (name, None) if type_ is None else (type_.name, type_.allowed)
        yield Slot(name, variable, allowed, optional=True, variadic=False, homogeneous=False)
