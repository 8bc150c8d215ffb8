"""Writes docs/api.md: `python -m tests.api_page > docs/api.md`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

import sardonyx
from sardonyx import types as annotations

_OPENING = """# Public names

Every public name with one line; `help(name)` has the whole text, with an example. Other names are
internal, and may change in any release ([stability.md](stability.md)). This page is written by
`python -m tests.api_page > docs/api.md`, from the first lines of the docstrings.
"""

# Aliases of types have no docstrings.
_ALIASES = {
    "Alias": "A result that is one of the inputs, unchanged, for an operator of your own.",
    "Array": "An input or result on the device, of the backend's array library.",
    "Arrays": "A list of arrays, such as a variadic input.",
    "DType": "A NumPy dtype, of an attribute that names an element type.",
    "Floats": "A tuple of floats, known while tracing.",
    "Host": "A NumPy array on the host, known while tracing.",
    "Ints": "A tuple of integers, known while tracing.",
    "Key": "The random key of an operator that draws at random.",
    "Outputs": "The number of outputs that the node has.",
    "OutputsRead": "The number of outputs up to the last one that anything reads.",
    "Strings": "A tuple of strings, known while tracing.",
    "Unsized": "A result whose shape depends on data.",
    "Value": "Any value: an array, a sequence, an optional or a map.",
}
_WITH_MEMBERS = (
    sardonyx.Model,
    annotations.BoundModel,
    annotations.ExportedModel,
    annotations.ShardedModel,
    annotations.PureFunction,
    annotations.Artefact,
    sardonyx.Program,
    sardonyx.Profile,
    sardonyx.Results,
    sardonyx.Comparison,
    annotations.Report,
    annotations.GraphView,
)
# Members that only the package itself calls.
_INTERNAL = ("named",)


def page() -> str:
    """The whole page, in Markdown."""
    public = {name: getattr(sardonyx, name) for name in sardonyx.__all__ if name[0] != "_"}
    functions = {n: x for n, x in public.items() if not isinstance(x, (type, types.ModuleType))}
    modules = {n: x for n, x in public.items() if isinstance(x, types.ModuleType)}
    modules["types"] = annotations
    errors = {n: x for n, x in public.items() if _is_error(x)}
    classes = {n: x for n, x in public.items() if isinstance(x, type) and n not in errors}
    named = {name: getattr(annotations, name) for name in annotations.__all__}
    sections = [
        ("Functions of `sardonyx`", functions),
        ("Classes of `sardonyx`", classes),
        ("Errors of `sardonyx`", errors),
        ("Modules of `sardonyx`", modules),
        ("Names of `sardonyx.types`", named),
        *((f"Members of `{kind.__name__}`", dict(_members(kind))) for kind in _WITH_MEMBERS),
    ]
    return "\n".join([_OPENING, *(_section(title, rows) for title, rows in sections)])


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that the package itself defines."""
    for name, value in inspect.getmembers(kind):
        defined = next((c for c in kind.__mro__ if name in vars(c)), object)
        is_own = defined.__module__.startswith("sardonyx")
        is_public = name[0] != "_" and name not in _INTERNAL
        if is_own and is_public and (callable(value) or isinstance(value, property)):
            yield name, value


def _section(title: str, values: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {_line(name, value)} |" for name, value in sorted(values.items())]
    return "\n".join([f"## {title}", "", "| name | description |", "|---|---|", *rows, ""])


def _line(name: str, value: Any) -> str:
    if name in _ALIASES:
        return _ALIASES[name]
    text = inspect.getdoc(value) or ""
    first = text.partition("\n")[0]
    assert first.endswith("."), f"the docstring of {name} begins with {first!r}, not a sentence"
    return first.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
