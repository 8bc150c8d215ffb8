"""The standard's text on an operator, as the docstring of its function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence

from onnx.defs import OpSchema

from sardonyx.functions.signatures import kind_of, signature_text
from sardonyx.ops import OPS
from sardonyx.recording.operators import Operator


def document(operator: Operator) -> str:
    """Return the docstring: the signature, the standard's text, inputs, attributes, results."""
    schema = operator.standard
    if schema is None:
        return "\n".join([signature_text(operator), "", *_of_own(operator)])
    domain = operator.domain or "ai.onnx"
    since = f"Of {domain}, in the form of version {schema.since_version}."
    parts = [signature_text(operator), "", _tidy(schema.doc or ""), "", since]
    for title, lines in (
        ("Inputs", list(_formals(schema.inputs))),
        ("Attributes", list(_attributes(schema))),
        ("Results", list(_formals(schema.outputs))),
        ("Types", list(_types(schema))),
    ):
        if lines:
            parts += ["", title, "-" * len(title), *lines]
    return "\n".join(parts)


def summary(operator: Operator) -> str:
    """Return the first sentence of the text."""
    standard = operator.standard
    text = "\n".join(_of_own(operator)) if standard is None else standard.doc or ""
    paragraph = _tidy(text).partition("\n\n")[0].replace("\n", " ")
    first = re.match(r".+?[.:](?=\s|$)", paragraph)
    return first[0] if first else paragraph


def _of_own(operator: Operator) -> Iterator[str]:
    op = OPS.get((operator.domain, operator.name))
    text = inspect.cleandoc(op.__doc__ or "") if op is not None else ""
    yield text or f"An operator of {operator.domain}."


def _formals(formals: Sequence[OpSchema.FormalParameter]) -> Iterator[str]:
    for formal in formals:
        kind = {"Optional": ", optional", "Variadic": ", any number"}.get(
            kind_of(formal.option), ""
        )
        yield f"{formal.name} ({formal.type_str}{kind})"
        yield from _indented(formal.description)


def _attributes(schema: OpSchema) -> Iterator[str]:
    for name, attribute in schema.attributes.items():
        required = ", required" if attribute.required else ""
        yield f"{name} ({kind_of(attribute.type).lower()}{required})"
        yield from _indented(attribute.description)


def _types(schema: OpSchema) -> Iterator[str]:
    for constraint in schema.type_constraints:
        kinds = ", ".join(each.removeprefix("tensor(").removesuffix(")")
                          if each.startswith("tensor(") else each
                          for each in constraint.allowed_type_strs)  # fmt: skip
        yield f"{constraint.type_param_str}: {kinds}"


def _indented(text: str) -> Iterator[str]:
    yield from (f"    {line}".rstrip() for line in _tidy(text).splitlines())


def _tidy(text: str) -> str:
    """Return the Markdown without its common indent, trailing spaces and repeated empty lines."""
    text = inspect.cleandoc(text).strip()
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines)
