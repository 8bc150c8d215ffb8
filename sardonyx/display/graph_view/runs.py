"""Groups for nodes that have none: long runs are cut where few values cross."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

from sardonyx.display.graph_view.picture import Group, Picture

# Maximum members of a group: beyond it neither the eye nor the layout copes.
MOST_MEMBERS = 100
_MOST_ENDS = 12


def with_runs(picture: Picture) -> None:
    """Divide groups of too many members into runs, in place."""
    for role in ("input", "output"):
        _gather_ends(picture, role)
    pending = [group for group, members in _members(picture).items() if len(members) > MOST_MEMBERS]
    for group in pending:
        _divide(picture, group)


def _gather_ends(picture: Picture, role: str) -> None:
    """Put many inputs, or outputs, of one graph into a group of their own."""
    by_group: dict[int, list[int]] = defaultdict(list)
    for number, box in enumerate(picture.boxes):
        if box.role == role:
            by_group[box.group].append(number)
    for group, ends in by_group.items():
        if len(ends) > _MOST_ENDS:
            picture.groups.append(Group(f"{len(ends)} {role}s", group, "run"))
            for number in ends:
                picture.boxes[number].group = len(picture.groups) - 1


# A member is a box, or a group with an offset, so that both have numbers of one kind.
def _members(picture: Picture) -> dict[int, list[int]]:
    """Return for each group its nodes and groups, in the order of the first node of each."""
    first: dict[int, int] = {}
    for number, box in enumerate(picture.boxes):
        group = box.group
        while group > 0 and group not in first:
            first[group] = number
            group = picture.groups[group].parent
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, box in enumerate(picture.boxes):
        members[box.group].append((number, number))
    for group, number in first.items():
        owner = picture.groups[group].node
        place = number if owner is None else owner
        members[picture.groups[group].parent].append((place, len(picture.boxes) + group))
    return {group: [member for _, member in sorted(each)] for group, each in members.items()}


def _divide(picture: Picture, group: int) -> None:
    """Move the members of a group into runs; again, if these are too many themselves."""
    offset = len(picture.boxes)
    while True:
        members = [m for m in _members(picture)[group] if not _is_end(picture, m)]
        if len(members) <= MOST_MEMBERS:
            return
        crossing = _crossings(picture, members)
        first = 0
        for start, end in pairwise(_cuts(crossing, len(members))):
            picture.groups.append(Group(_title(picture, members[start:end], first), group, "run"))
            first += _size(picture, members[start:end])
            for member in members[start:end]:
                number = len(picture.groups) - 1
                if member < offset:
                    picture.boxes[member].group = number
                else:
                    picture.groups[member - offset].parent = number


def _is_end(picture: Picture, member: int) -> bool:
    return member < len(picture.boxes) and picture.boxes[member].role != "node"


def _crossings(picture: Picture, members: list[int]) -> list[int]:
    """Return how many values cross the cut before each member."""
    position = _positions(picture, members)
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, box in enumerate(picture.boxes):
        place = position.get(number)
        if place is None:
            continue
        for port in box.outputs:
            if port.value is not None:
                made[port.value] = place
        for port in box.inputs:
            if port.value is not None:
                last[port.value] = max(place, last.get(port.value, 0))
    changes = [0] * (len(members) + 1)
    for value, start in made.items():
        end = last.get(value, start)
        if end > start:
            changes[start + 1] += 1
            changes[end + 1 if end + 1 <= len(members) else len(members)] -= 1
    crossing, total = [], 0
    for change in changes:
        total += change
        crossing.append(total)
    return crossing


def _positions(picture: Picture, members: list[int]) -> dict[int, int]:
    """Return for each box within the members the place of its member."""
    offset = len(picture.boxes)
    of_group = {m - offset: i for i, m in enumerate(members) if m >= offset}
    of_box = {m: i for i, m in enumerate(members) if m < offset}
    for number, box in enumerate(picture.boxes):
        group = box.group
        while group >= 0 and number not in of_box:
            if group in of_group:
                of_box[number] = of_group[group]
            group = picture.groups[group].parent
    return of_box


def _cuts(crossing: list[int], count: int) -> list[int]:
    """Return where to cut: about the square root of `count` apart, where few values cross."""
    length = min(max(round(math.sqrt(count)), 12), 64)
    cuts = [0]
    while count - cuts[-1] > 1.5 * length:
        start = cuts[-1]
        candidates = range(start + length * 2 // 3, start + length * 4 // 3 + 1)
        cuts.append(min(candidates, key=lambda i: (crossing[i], abs(i - start - length))))
    return [*cuts, count]


def _size(picture: Picture, members: list[int]) -> int:
    """Return the number of nodes in the members, at any depth."""
    return len(_positions(picture, members))


def _title(picture: Picture, members: list[int], first: int) -> str:
    return f"nodes {first + 1} to {first + _size(picture, members)}"
