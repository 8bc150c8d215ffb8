"""All operators as rows, and one of them in detail, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

from onnx import helper
from onnx.defs import OpSchema

from sardonyx.cli.operator_page import DOMAINS, histories, link, places_of, type_names
from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.bodies import has_body
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.ops import OPS
from sardonyx.ops.microsoft.left_out import LEFT_OUT
from sardonyx.printable import printable

# Characters of the types of one input that a table shows.
LONGEST_TYPES = 120


class OperatorRow(NamedTuple):
    """One operator: where it runs, and the opsets that define it."""

    operator: str
    versions: tuple[int, ...]
    jax: str
    cupy: str


@cache
def schemas() -> dict[tuple[str, str], list[OpSchema]]:
    """Return the standard's operators by domain and name, each with its schemas, oldest first."""
    return {(domain, name): each for domain in DOMAINS for name, each in histories(domain)}


def rows() -> Iterator[OperatorRow]:
    """Yield all operators: those of the standard by domain, then those of onnxruntime.

    >>> next(row for row in rows() if row.operator == "NonZero")
    OperatorRow(operator='NonZero', versions=(9, 13), jax='host', cupy='device')
    """
    for (domain, name), history in sorted(schemas().items()):
        versions = tuple(schema.since_version for schema in history)
        yield OperatorRow(_title(domain, name), versions, *places_of(domain, name, history))
    for domain, name in sorted(OPS.keys() - schemas().keys()):
        yield OperatorRow(_title(domain, name), (1,), *places_of(domain, name, []))


def names() -> list[str]:
    """Return the names of all operators, with their domain if it is not ONNX's own."""
    return sorted(_title(*key) for key in schemas().keys() | OPS.keys())


def details(name: str) -> dict[str, Any]:
    """Return what there is to say of an operator: sentences by title, and tables.

    >>> details("softmax")["operator"]
    'Softmax'
    """
    domain, name = _found(name)
    history = schemas().get((domain, name), [])
    jax, cupy = places_of(domain, name, history)
    facts: dict[str, Any] = {"operator": _title(domain, name)}
    if history:
        versions = ", ".join(str(schema.since_version) for schema in history)
        facts["opsets"] = versions + (" (deprecated)" if history[-1].deprecated else "")
    facts |= {"runs on JAX": jax, "runs on CuPy": cupy}
    if history:
        newest = history[-1]
        facts["has a function body"] = (
            "yes" if has_body(name, domain, newest.since_version) else "no"
        )
        facts["page"] = link(domain, name)
        facts |= _of_schema(newest)
    else:
        facts |= _of_definition(domain, name)
    return facts


def _of_schema(schema: OpSchema) -> dict[str, Any]:
    types = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}

    def row(slot: Any) -> tuple[str, str, str]:
        many = {"Optional": " (optional)", "Variadic": " (any number)"}
        title = slot.name + many.get(slot.option.name, "")
        return title, type_names(types.get(slot.type_str, [slot.type_str])), ""

    attributes = [
        (name, str(each.type).rpartition(".")[2].lower(), _default(each))
        for name, each in sorted(schema.attributes.items())
    ]
    return {
        "inputs": [row(slot) for slot in schema.inputs],
        "outputs": [row(slot) for slot in schema.outputs],
        **({"attributes": attributes} if attributes else {}),
    }


def _default(attribute: Any) -> str:
    if attribute.required:
        return "required"
    if not attribute.default_value.type:
        return ""
    value = helper.get_attribute_value(attribute.default_value)
    return f"default {value.decode() if isinstance(value, bytes) else value}"


def _of_definition(domain: str, name: str) -> dict[str, Any]:
    signature = signature_of(name, domain, 1)
    definition = OPS[domain, name].at(1)
    slots: Sequence[Any] = () if signature is None else signature.inputs
    inputs = [
        (each.name + (" (optional)" if not each.required else ""), _own_types(slot), "")
        for each, slot in zip(definition.inputs, slots, strict=False)
    ]
    attributes = [
        (key, getattr(each.type, "__name__", str(each.type)), _own_default(each))
        for key, each in sorted(definition.attributes.items())
    ]
    return {"inputs": inputs, **({"attributes": attributes} if attributes else {})}


def _own_types(slot: Any) -> str:
    return slot.type if slot.allowed is None else type_names(slot.allowed)


def _own_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default is None else f"default {parameter.default}"


def _found(name: str) -> tuple[str, str]:
    """Return the domain and the name of an operator that may lack its domain, in any letters."""
    by_title = {title.lower(): title for title in names()}
    wanted = name.lower().removeprefix("ai.onnx::")
    matches = [t for low, t in by_title.items() if wanted in (low, low.rpartition("::")[2])]
    if by_title.get(wanted) in matches:
        matches = [by_title[wanted]]
    if len(matches) == 1:
        domain, _, bare = matches[0].rpartition("::")
        return domain, bare
    if matches:
        raise InvalidInput(f"Several operators are called {name!r}: pass {' or '.join(matches)}.")
    if reason := {key.lower(): text for key, text in LEFT_OUT.items()}.get(
        wanted.removeprefix("com.microsoft::")
    ):
        raise InvalidInput(f"The operator {name!r} of com.microsoft is left out: {reason}.")
    close = [by_title[low] for low in get_close_matches(wanted, by_title, 3)]
    advice = f"did you mean {' or '.join(close)}?" if close else "`sardonyx ops` lists all."
    raise InvalidInput(f"There is no operator '{printable(name, 80)}': {advice}")


def _title(domain: str, name: str) -> str:
    return f"{domain}::{name}" if domain else name
