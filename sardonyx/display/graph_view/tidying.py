"""Scopes that say nothing: those of one member are joined with it."""

from __future__ import annotations

from collections import Counter

from sardonyx.display.graph_view.picture import ROOT, Picture


def without_single_members(picture: Picture) -> None:
    """Take scopes of a single node away, and join scopes that hold one scope only, in place."""
    groups = picture.groups
    count = Counter(box.group for box in picture.boxes)
    count.update(group.parent for group in groups[1:])
    only_group = {group.parent: number for number, group in enumerate(groups)}
    removed: set[int] = set()
    # From the inside out, as groups come after those that they are in.
    for number in range(len(groups) - 1, ROOT, -1):
        group = groups[number]
        if group.kind == "scope" and count[number] == 1:
            inner = only_group.get(number)
            while inner in removed:
                inner = only_group.get(inner)
            if inner is not None and groups[inner].kind == "scope":
                groups[inner].name = f"{group.name}/{groups[inner].name}"
            removed.add(number)
    if removed:
        _renumber(picture, removed)


def _renumber(picture: Picture, removed: set[int]) -> None:
    groups = picture.groups

    def kept(number: int) -> int:
        while number in removed:
            number = groups[number].parent
        return number

    numbers = {
        old: new for new, old in enumerate(n for n in range(len(groups)) if n not in removed)
    }
    for box in picture.boxes:
        box.group = numbers[kept(box.group)]
    for number in numbers:
        if number != ROOT:
            groups[number].parent = numbers[kept(groups[number].parent)]
    picture.groups = [groups[number] for number in numbers]
