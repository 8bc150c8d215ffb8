"""Names such as /encoder/layer.0/attention/MatMul as a tree that folds, of bounded size."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, element, muted
from sardonyx.display.units import more_text

T = TypeVar("T")

# Beyond this depth the rest of a name is one name.
DEEPEST = 12
# Maximum entries of one branch, and of a whole tree.
MOST_CHILDREN = 64
MOST_ENTRIES = 700

_SEPARATORS = re.compile(r"[/.]+|::")


@dataclass(eq=False, slots=True)
class Scope(Generic[T]):
    """One level of a tree of names: inner scopes and own entries, in the order of their names."""

    name: str
    scopes: dict[str, Scope[T]] = field(default_factory=dict)
    entries: list[tuple[str, T]] = field(default_factory=list)

    def all_entries(self) -> list[T]:
        """Return the entries of this scope and of all scopes inside it."""
        found = [entry for _, entry in self.entries]
        for scope in self.scopes.values():
            found += scope.all_entries()
        return found


def grouped(named: Iterable[tuple[str, T]]) -> Scope[T]:
    """Return the tree of named entries.

    Slashes and dots divide names. A number belongs to the word before it, as in `layer.0`. A scope
    that holds one scope and nothing else is joined with it.

    >>> tree = grouped([("/block/layer.0/Add", 1), ("/block/layer.1/Add", 2), ("/Mul", 3)])
    >>> list(tree.scopes), list(tree.scopes["block"].scopes), tree.entries
    (['block'], ['layer.0', 'layer.1'], [('Mul', 3)])
    """
    root: Scope[T] = Scope("")
    for name, entry in named:
        *path, last = _parts(name)
        scope = root
        for part in path:
            inner = scope.scopes.get(part)
            if inner is None:
                inner = scope.scopes[part] = Scope(part)
            scope = inner
        scope.entries.append((last, entry))
    root.scopes = {scope.name: scope for scope in map(_joined, root.scopes.values())}
    return root


def _parts(name: str) -> list[str]:
    words = [word for word in _SEPARATORS.split(name, DEEPEST) if word] or [name]
    parts: list[str] = []
    for i, word in enumerate(words):
        if parts and word.isdigit() and i < len(words) - 1:
            parts[-1] += f".{word}"
        else:
            parts.append(word)
    return parts


def _joined(scope: Scope[T]) -> Scope[T]:
    while len(scope.scopes) == 1 and not scope.entries:
        (only,) = scope.scopes.values()
        scope.name, scope.scopes, scope.entries = (
            f"{scope.name}/{only.name}", only.scopes, only.entries
        )  # fmt: skip
    inner = [_joined(each) for each in scope.scopes.values()]
    scope.scopes = {each.name: each for each in inner}
    return scope


def scope_tree(
    root: Scope[T], summary: Callable[[Sequence[T]], str], entry: Callable[[str, T], object]
) -> Html:
    """Return a tree as folds: a summary of each scope's entries, and a line for each entry.

    The outer scopes come first: where there are too many entries, inner ones are left out.
    """
    chosen = _within_bounds(root)
    return _content(root, chosen, summary, entry)


def _within_bounds(root: Scope[T]) -> set[int]:
    """Return the scopes whose content is shown, by id."""
    chosen: set[int] = set()
    left = MOST_ENTRIES
    waiting = deque([root])
    while waiting:
        scope = waiting.popleft()
        size = min(len(scope.scopes), MOST_CHILDREN) + min(len(scope.entries), MOST_CHILDREN)
        if size > left:
            continue
        left -= size
        chosen.add(id(scope))
        waiting.extend(list(scope.scopes.values())[:MOST_CHILDREN])
    return chosen


def _content(
    scope: Scope[T],
    chosen: set[int],
    summary: Callable[[Sequence[T]], str],
    entry: Callable[[str, T], object],
) -> Html:
    inner = list(scope.scopes.values())
    pieces: list[str] = []
    for each in inner[:MOST_CHILDREN]:
        note = summary(each.all_entries())
        if id(each) in chosen:
            pieces.append(fold(each.name, _content(each, chosen, summary, entry), note=note))
        else:
            pieces.append(element("div", each.name, " ", muted(note), cls="sx-leaf"))
    pieces += [element("div", entry(*e), cls="sx-leaf") for e in scope.entries[:MOST_CHILDREN]]
    rest = max(len(inner) - MOST_CHILDREN, 0) + max(len(scope.entries) - MOST_CHILDREN, 0)
    if rest:
        pieces.append(element("div", muted(more_text(rest)), cls="sx-leaf"))
    return Html("".join(pieces))
