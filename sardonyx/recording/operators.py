"""The operators of one domain at one opset: their names, and the errors for others."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property

import onnx

from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.operators import Signature, first_version
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.ops import OPS


class UnknownOperatorError(InvalidInput, AttributeError):
    """No operator of that name exists at that opset."""


@dataclass(frozen=True)
class Operator:
    """An operator at one opset, and its schema."""

    name: str
    domain: str
    opset: int
    schema: Signature

    @property
    def title(self) -> str:
        """The operator and its opset, as in a message."""
        return f"{f'{self.domain}.' if self.domain else ''}{self.name} of opset {self.opset}"

    @cached_property
    def standard(self) -> onnx.defs.OpSchema | None:
        """ONNX's own schema, which has the text; None for operators of other domains."""
        try:
            return onnx.defs.get_schema(self.name, self.opset, self.domain)
        except onnx.defs.SchemaError:
            return None

    def is_same_in(self, opset: int) -> bool:
        """Whether the standard has this version of the operator in another opset too."""
        try:
            other = onnx.defs.get_schema(self.name, opset, self.domain)
        except onnx.defs.SchemaError:
            return False
        return self.standard is not None and self.standard.since_version == other.since_version

    def __reduce__(self) -> tuple[object, ...]:
        return operator_of, (self.name, self.domain, self.opset)


@cache
def operator_of(name: str, domain: str, opset: int) -> Operator:
    """Return an operator at an opset, or raise `UnknownOperatorError` with what comes close."""
    schema = signature_of(name, domain, opset)
    if schema is not None and not schema.deprecated:
        return Operator(name, domain, opset, schema)
    title = domain or "ai.onnx"
    if schema is not None:
        raise UnknownOperatorError(
            f"Opset {opset} of {title} has deprecated {name}: take an older opset, or what "
            "replaced it."
        )
    since = first_version(name, domain)
    if since is not None and since > opset:
        raise UnknownOperatorError(
            f"Opset {opset} of {title} has no {name}, which exists since opset {since}: take "
            f"sardonyx.opset({since}) or a newer one."
            if not domain
            else f"Opset {opset} of {title} has no {name}, which exists since opset {since}."
        )
    raise UnknownOperatorError(
        f"Opset {opset} of {title} has no {name}.{_advice(name, domain, opset)}"
    )


def _advice(name: str, domain: str, opset: int) -> str:
    names = operator_names(domain, opset)
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    if close:
        return f" Did you mean {', '.join(by_lower[each] for each in close)}?"
    return " dir() of the namespace lists its operators."


@cache
def operator_names(domain: str, opset: int) -> tuple[str, ...]:
    """Return the names of the operators of a domain at an opset, sorted."""
    standard = (s for s in _standard_names() if s[0] == domain)
    own = (key for key in OPS if key[0] == domain)
    candidates = {name for _, name in (*standard, *own)}
    schemas = {name: signature_of(name, domain, opset) for name in candidates}
    return tuple(sorted(n for n, schema in schemas.items() if schema and not schema.deprecated))


@cache
def _standard_names() -> frozenset[tuple[str, str]]:
    return frozenset((s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history())
