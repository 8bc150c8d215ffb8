"""Writes what the installed onnx says of its operators, for `sardonyx.graph.standard.operators`.

Run it: `python -m tests.operators_file > sardonyx/graph/standard/operators.jsonl`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import onnx

from sardonyx.graph.standard.operators import Slot, signature_of_schema


def lines() -> Iterator[str]:
    """Yield the lines of the file."""
    newest: dict[str, int] = {"": onnx.defs.onnx_opset_version()}
    types: dict[frozenset[str] | None, int] = {}
    operators: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        name, domain, since = schema.name, schema.domain, schema.since_version
        newest[domain] = max(newest.get(domain, 0), since)
        operators[name, domain][since] = _facts(schema, types)
    every = [sorted(each) for each in types if each is not None]
    yield _compact({"onnx": onnx.__version__, "newest": newest, "types": every})
    for (name, domain), versions in sorted(operators.items()):
        yield _compact([name, domain, [versions[since] for since in sorted(versions)]])


def _facts(schema: onnx.defs.OpSchema, types: dict[frozenset[str] | None, int]) -> dict[str, Any]:
    found = signature_of_schema(schema)

    def slot(each: Slot) -> list[Any]:
        number = types.setdefault(each.allowed, len(types))
        return [
            each.name,
            each.type,
            number,
            *map(int, (each.optional, each.variadic, each.homogeneous)),
        ]

    return {
        "since": schema.since_version,
        "inputs": list(map(slot, found.inputs)),
        "outputs": list(map(slot, found.outputs)),
        "attributes": {name: kind.name for name, kind in found.attributes.items()},
        "required": sorted(found.required),
        "input_counts": found.input_counts,
        "output_counts": found.output_counts,
        "deprecated": found.deprecated,
    }


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    print("\n".join(lines()))
