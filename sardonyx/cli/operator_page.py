"""The page of all operators: their versions, their types, and where they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx.defs import OpSchema

from sardonyx.graph.standard.bodies import has_body
from sardonyx.ops import OPS
from sardonyx.ops.definition import Definition, Need
from sardonyx.ops.microsoft.left_out import LEFT_OUT

_OPENING = """# Operators

Of the {total} operators of onnx {version}, sardonyx implements {built}. Any other operator runs by
its function body in the standard, if it has one. `sardonyx ops --markdown` prints this page.

The last two columns say where an operator runs if its inputs are not static:

- *device*: in the compiled program, on the device. On NumPy, the device is the host.
- *host*: on the host, between the compiled segments of a program. Strings always run on the host.
- *tracing*: during tracing, so it costs nothing at a call.
- *subgraph*: on the device, if the operator's branches or iterations keep all shapes the same;
  otherwise step by step.

On CuPy, an element of fewer than 8 bits takes a byte ([gpu.md](gpu.md#types-that-cupy-lacks)).
"""

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

MICROSOFT = ("com.microsoft", "com.microsoft.nchwc")

_OF_MICROSOFT = """onnxruntime's optimizer, quantizers and exporters write these operators. Its
documentation of contrib operators defines them."""

# Names for groups of types, used if an operator has all types of the group.
_GROUPS = (
    ("floats", ("float16", "bfloat16", "float", "double")),
    ("integers", ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    ("signed", ("int8", "int16", "int32", "int64")),
    ("unsigned", ("uint8", "uint16", "uint32", "uint64")),
    ("complex", ("complex64", "complex128")),
    ("float8", ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")),
    ("4 and 2 bits", ("int4", "uint4", "int2", "uint2")),
    ("4 bits", ("int4", "uint4")),
)


def page() -> str:
    """Return the whole page in Markdown.

    >>> "| [Relu](https://onnx.ai/onnx/operators/onnx__Relu.html) |" in page()
    True
    """
    by_domain = {domain: dict(histories(domain)) for domain in DOMAINS}
    total = sum(map(len, by_domain.values()))
    built = sum((domain, name) in OPS for domain, names in by_domain.items() for name in names)
    lines = [_OPENING.format(version=onnx.__version__, total=total, built=built)]
    for domain, names in by_domain.items():
        lines += [f"## {domain or 'ai.onnx'}: {len(names)}", ""]
        lines += ["| operator | versions | types | JAX | CuPy |", "|---|---|---|---|---|"]
        lines += [_row(domain, name, schemas) for name, schemas in sorted(names.items())]
        lines.append("")
    lines += _microsoft()
    return "\n".join(lines).rstrip() + "\n"


def _microsoft() -> Iterator[str]:
    """Yield the tables of the operators of com.microsoft, and of those that are left out."""
    ops = sorted(
        (op for (domain, _), op in OPS.items() if domain in MICROSOFT),
        key=lambda op: (op.domain, op.name),
    )
    yield from (f"## com.microsoft: {len(ops)}", "", _OF_MICROSOFT, "")
    yield from ("| operator | JAX | CuPy |", "|---|---|---|")
    for op in ops:
        places = places_of(op.domain, op.name, [])
        name = op.name if op.domain == MICROSOFT[0] else f"{op.name} ({op.domain})"
        yield f"| {name} | {' | '.join(places)} |"
    yield from ("", "Left out:", "", "| operator | why |", "|---|---|")
    yield from (f"| {name} | {reason} |" for name, reason in sorted(LEFT_OUT.items()))


def missing() -> list[str]:
    """Return the operators of the standard that sardonyx cannot run."""
    return [
        f"{domain or 'ai.onnx'}::{name}"
        for domain in DOMAINS
        for name, schemas in histories(domain)
        if (domain, name) not in OPS and not has_body(name, domain, schemas[-1].since_version)
    ]


def histories(domain: str) -> Iterator[tuple[str, list[OpSchema]]]:
    """Yield each operator of the domain with its schemas, the oldest first."""
    by_name: dict[str, list[OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain:
            by_name.setdefault(schema.name, []).append(schema)
    for name, schemas in by_name.items():
        yield name, sorted(schemas, key=lambda schema: schema.since_version)


def _row(domain: str, name: str, schemas: list[OpSchema]) -> str:
    versions = ", ".join(str(schema.since_version) for schema in schemas)
    if schemas[-1].deprecated:
        versions += " (deprecated)"
    newest = [schema for schema in schemas if not schema.deprecated][-1]
    places = places_of(domain, name, schemas)
    cells = (f"[{name}]({link(domain, name)})", versions, _types(newest), *places)
    return f"| {' | '.join(cells)} |"


def places_of(domain: str, name: str, schemas: list[OpSchema]) -> tuple[str, str]:
    """Return where an operator runs on JAX and on CuPy; without schemas it is one of our own.

    >>> places_of("com.microsoft", "Gelu", [])
    ('device', 'device')
    """
    op = OPS.get((domain, name))
    if not schemas:
        return ("missing",) * 2 if op is None else _places(op.at(1), of_strings=False)
    newest = [schema for schema in schemas if not schema.deprecated][-1]
    if op is None:
        return ("by its body" if has_body(name, domain, newest.since_version) else "missing",) * 2
    types = {text for slot in newest.inputs for text in slot.types}
    of_strings = bool(types) and all("string" in text for text in types)
    return _places(op.at(newest.since_version), of_strings=of_strings)


def link(domain: str, name: str) -> str:
    """Return the address of an operator's page in the standard."""
    return f"https://onnx.ai/onnx/operators/onnx_{domain.replace('.', '')}_{name}.html"


def _places(definition: Definition, *, of_strings: bool) -> tuple[str, str]:
    """Return where the operator runs on JAX and on CuPy."""
    if not _reads_data(definition):
        return "tracing", "tracing"
    if of_strings:
        return "host", "host"
    if definition.runs_subgraphs:
        return "subgraph", "subgraph"
    return ("host", "device") if definition.is_unsized else ("device", "device")


def _reads_data(definition: Definition) -> bool:
    reads = any(parameter.need is Need.ARRAY for parameter in definition.inputs)
    return reads or definition.draws or definition.walks


def type_names(types: Iterable[str]) -> str:
    """Return the elements of types as text, with names for groups.

    >>> type_names(["tensor(float16)", "tensor(bfloat16)", "tensor(float)", "tensor(double)"])
    'floats'
    """
    names = {_element(text) for text in types}
    return ", ".join(_grouped(names - {""}))


def _types(schema: OpSchema) -> str:
    slots = (*schema.inputs, *schema.outputs)
    names = {_element(text) for slot in slots for text in slot.types}
    names |= {_element(t) for c in schema.type_constraints for t in c.allowed_type_strs}
    return ", ".join(_grouped(names - {""}))


def _element(text: str) -> str:
    """Return the element type of a tensor type; of other types, the type itself if it is plain."""
    inner = text.rpartition("(")[2].rstrip(")") if "tensor(" in text else text
    return inner if "(" not in inner else ""


def _grouped(names: set[str]) -> Iterable[str]:
    remaining = set(names)
    for title, members in _GROUPS:
        if remaining.issuperset(members):
            yield title
            remaining.difference_update(members)
    yield from sorted(remaining)
