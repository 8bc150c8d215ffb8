"""Decision trees as arrays, and the traversal of all trees by all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.size_limits import refuse_huge
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Host

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

# The cases in which a node leads to its second child: bit 0 if the feature is less than the split,
# bit 1 if it is equal, bit 2 if it is greater, bit 3 if it is missing.
SIDES = {
    "BRANCH_LEQ": 0b011,
    "BRANCH_LT": 0b001,
    "BRANCH_GTE": 0b110,
    "BRANCH_GT": 0b100,
    "BRANCH_EQ": 0b010,
    "BRANCH_NEQ": 0b101,
    "BRANCH_MEMBER": 0b000,
}
MISSING = 0b1000
SIDE_BITS = 4

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

# Maximum number of positions in trees that are tracked at once; further trees take turns.
AT_ONCE = 2**19

LARGEST_TABLE = 2**32

# Maximum number of groups by depth, the fewest trees that are divided, and the part of their steps
# that may be left: each group is one more loop to compile.
MOST_GROUPS = 4
SMALLEST_DIVIDED = 32
WORTH_DIVIDING = 0.8


class Trees(NamedTuple):
    """Trees as a model describes them; children with numbers from `len(features)` on are leaves."""

    features: Host
    splits: Host
    sides: Host
    # Pairs of a node and a member of its set.
    member_nodes: Host
    members: Host
    # The children of each node: if its comparison is false, and if it is true.
    children: Host
    roots: Host
    leaves: int
    # The weights, each for a leaf and a target.
    vote_leaves: Host
    vote_targets: Host
    weights: Host
    targets: int


class Sets(NamedTuple):
    """Sets of nodes as bits: one per distinct member, after a bit for values in no set."""

    members: Host
    bits: Host
    # The row of bits for each node, and the number of words per row.
    rows: Host
    words: int


class Group(NamedTuple):
    """Trees that are walked together, as far down as the deepest of them goes."""

    # One column per target if each tree votes for only one; otherwise a single column.
    roots: Host
    depth: int


class Forest(NamedTuple):
    """Tables for the walk: leaves, which lead to themselves, a blank leaf, and inner nodes."""

    # For each node the feature and the sides in one number, both children, and the bits of the
    # split, if it has 32. They lie side by side, since reading memory takes most of the time.
    nodes: Host
    splits: Host
    sets: Sets | None
    # The sides, if they are the same for all nodes.
    common: int | None
    features: int
    groups: tuple[Group, ...]
    # The votes of each leaf: for its tree's target, or for all targets.
    votes: Host
    trees: int


# -- building the tables --------------------------------------------------------------------------


def planted(trees: Trees, aggregate: str, dtype: DType) -> Forest:
    """Return the tables of trees; raise a ValueError if the nodes form a cycle."""
    levels = _levels(trees.children)
    inner, blank = len(trees.features), len(trees.features) + trees.leaves
    kinds = set(trees.sides.tolist())
    grouped = _by_target(trees, _targets(trees, levels)[trees.roots], blank)
    roots = trees.roots[:, None] if grouped is None else grouped
    leaves = np.arange(trees.leaves + 1)

    def leaves_first(numbers: Host) -> Host:
        return np.where(numbers < inner, numbers + len(leaves), numbers - inner)

    splits = _after(np.nan, leaves, trees.splits).astype(dtype)
    children = np.append(np.repeat(leaves, 2), leaves_first(trees.children)).reshape(-1, 2)
    columns = [_after(0, leaves, trees.features << SIDE_BITS | trees.sides), children]
    if dtype.itemsize == INT32.itemsize:
        columns.append(splits.view(INT32))
    return Forest(
        nodes=np.column_stack(columns).astype(INT32),
        splits=splits,
        sets=_sets(trees, len(leaves), dtype) if trees.members.size else None,
        common=kinds.pop() if len(kinds) == 1 and not kinds & {0, MISSING} else None,
        features=int(trees.features.max(initial=-1)) + 1,
        groups=tuple(
            Group(leaves_first(group.roots).astype(INT32), group.depth)
            for group in _by_depth(roots, _heights(trees, levels))
        ),
        votes=_votes(trees, aggregate, dtype, dense=grouped is None),
        trees=len(trees.roots),
    )


def _after(of_leaves: float, leaves: Host, of_nodes: Host) -> Host:
    return np.concatenate([np.full(len(leaves), of_leaves, of_nodes.dtype), of_nodes])


def _levels(children: Host) -> list[Host]:
    """Return the nodes by level, each after all nodes that lead to it."""
    count = len(children)
    parents = np.bincount(children[children < count], minlength=count)
    levels = [np.flatnonzero(parents == 0)]
    while levels[-1].size:
        below = children[levels[-1]]
        below = below[below < count]
        np.subtract.at(parents, below, 1)
        # `np.unique` imports numpy.ma, which takes longer than the rest of a small graph's load.
        below = np.unique_counts(below).values
        levels.append(below[parents[below] == 0])
    if sum(map(len, levels)) < count:
        raise ValueError("the nodes form a cycle, in which a row would never reach a leaf")
    return levels[:-1]


def _heights(trees: Trees, levels: Sequence[Host]) -> Host:
    """Return the greatest number of steps from each node to a leaf."""
    heights = np.zeros(len(trees.features) + trees.leaves + 1, INT32)
    for level in reversed(levels):
        heights[level] = heights[trees.children[level]].max(axis=1) + 1
    return heights


def _by_depth(roots: Host, heights: Host) -> list[Group]:
    """Divide trees by their depth if that saves many steps; boosted trees differ much in it."""
    depths = heights[roots].max(axis=1)
    deepest = int(depths.max())
    parts = np.array_split(np.argsort(depths, kind="stable"), MOST_GROUPS)
    groups = [Group(roots[part], int(depths[part].max())) for part in parts if part.size]
    steps = sum(len(group.roots) * group.depth for group in groups)
    if len(roots) < SMALLEST_DIVIDED or steps > WORTH_DIVIDING * len(roots) * deepest:
        return [Group(roots, deepest)]
    return groups


NO_TARGET, SEVERAL = -1, -2


def _targets(trees: Trees, levels: Sequence[Host]) -> Host:
    """Return the target that the leaves below each node vote for."""
    inner = len(trees.features)
    targets = np.full(inner + trees.leaves, NO_TARGET)
    leaves = inner + trees.vote_leaves
    targets[leaves] = trees.vote_targets
    targets[leaves[targets[leaves] != trees.vote_targets]] = SEVERAL
    for level in reversed(levels):
        one, other = targets[trees.children[level]].T
        both = np.where((one == other) | (other == NO_TARGET), one, SEVERAL)
        targets[level] = np.where(one == NO_TARGET, other, both)
    return targets


def _by_target(trees: Trees, targets: Host, blank: int) -> Host | None:
    """Return the roots with one column per target; None if trees vote for several or unevenly."""
    if SEVERAL in targets:
        return None
    targets = np.maximum(targets, 0)
    order = np.argsort(targets, kind="stable")
    _, first, counts = np.unique(targets[order], return_index=True, return_counts=True)
    if counts.max() * trees.targets > 4 * len(targets) + 64:
        return None
    grouped = np.full((counts.max(), trees.targets), blank)
    grouped[np.arange(len(order)) - np.repeat(first, counts), targets[order]] = trees.roots[order]
    return grouped


def _votes(trees: Trees, aggregate: str, dtype: DType, *, dense: bool) -> Host:
    shape = (trees.leaves + 1, trees.targets) if dense else (trees.leaves + 1,)
    refuse_huge(shape, dtype, LARGEST_TABLE)
    votes = np.full(shape, neutral(aggregate), dtype)
    combine: Any = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    places = (trees.vote_leaves, trees.vote_targets) if dense else trees.vote_leaves
    combine.at(votes, places, trees.weights.astype(dtype))
    return votes


def neutral(aggregate: str) -> float:
    return {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)


def _sets(trees: Trees, leaves: int, dtype: DType) -> Sets:
    members, places = np.unique(trees.members.astype(dtype), return_inverse=True)
    owners, sets = np.unique(trees.member_nodes, return_inverse=True)
    words = len(members) // 32 + 1
    refuse_huge((len(owners) + 1, words), INT32, LARGEST_TABLE)
    bits = np.zeros((len(owners) + 1, words), np.uint32)
    place = places + 1
    np.bitwise_or.at(bits, (sets + 1, place // 32), np.uint32(1) << (place % 32).astype(np.uint32))
    rows = np.zeros(leaves + len(trees.features), INT32)
    rows[leaves + owners] = np.arange(1, len(owners) + 1)
    return Sets(members, bits.view(INT32).ravel(), rows, words)


# -- the walk -------------------------------------------------------------------------------------


def walked(xp: Backend, forest: Forest, X: Array, aggregate: str) -> Array:
    """Return the aggregated votes of the leaves that each row reaches, per target."""
    rows = X.shape[0]
    if forest.features > X.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features, but the trees read {forest.features}")
    votes = xp.put(forest.votes)
    columns = forest.groups[0].roots.shape[1]
    shape = (rows, *votes.shape[1:]) if votes.ndim == 2 else (columns, rows)
    xp.allow(shape, xp.numpy_dtype(X.dtype))
    total = xp.full(shape, neutral(aggregate), dtype=X.dtype)
    for group in forest.groups:
        turns = _turns(forest, group.roots, rows)
        leaves_of = _Walk(xp, forest, X, turns.shape[1], group.depth)

        def turn(
            carry: tuple[Array], roots: tuple[Array], leaves_of: _Walk = leaves_of
        ) -> tuple[tuple[Array], tuple[()]]:
            leaf_votes = xp.take_in_range(votes, leaves_of(roots[0]))
            together = xp.reshape(leaf_votes, (leaves_of.trees // columns, *shape))
            return (_combined(xp, aggregate, carry[0], together),), ()

        if len(turns) == 1:
            (total,), _ = turn((total,), (xp.put(turns[0]),))
        else:
            (total,), _ = xp.scan(turn, (total,), (xp.put(turns),), len(turns))
    total = total if votes.ndim == 2 else xp.matrix_transpose(total)
    if aggregate == "AVERAGE":
        return total / forest.trees
    if aggregate == "SUM":
        return total
    # Targets without any vote are zero.
    return xp.where(xp.equal(total, neutral(aggregate)), xp.zeros_like(total), total)


def _turns(forest: Forest, roots: Host, rows: int) -> Host:
    """Return the roots in rows of equal length, one per turn, so that few are walked at once."""
    count, columns = roots.shape
    width = max(rows, 1) * columns * forest.votes[0].size
    together = min(max(AT_ONCE // width, 1), count)
    turns = -(-count // together)
    blank = len(forest.votes) - 1
    padded = np.full((turns * together, columns), blank, INT32)
    padded[:count] = roots
    return padded.reshape(turns, together * columns)


def _combined(xp: Backend, aggregate: str, before: Array, votes: Array) -> Array:
    if aggregate == "MIN":
        return xp.minimum(before, xp.min(votes, axis=0))
    if aggregate == "MAX":
        return xp.maximum(before, xp.max(votes, axis=0))
    return before + xp.sum(votes, axis=0)


class _Walk:
    """A walk of all rows from the roots of some trees to their leaves, tree by tree."""

    def __init__(self, xp: Backend, forest: Forest, X: Array, trees: int, depth: int) -> None:
        self.xp = xp
        self.trees, self.depth = trees, depth
        self.forest = forest
        self.rows = X.shape[0]
        self.flat = xp.reshape(X, (-1,))
        counted = INT32 if self.flat.size < 2**31 else INT64
        starts = xp.arange(self.rows, dtype=xp.dtype(counted)) * X.shape[1]
        self.starts = xp.reshape(xp.broadcast_to(starts, (trees, self.rows)), (-1,))
        self.nodes, self.splits = xp.put(forest.nodes), xp.put(forest.splits)
        if forest.sets is not None:
            self.bits, self.set_rows = xp.put(forest.sets.bits), xp.put(forest.sets.rows)
            self.member_places = self._member_places(forest.sets.members)

    def __call__(self, roots: Array) -> Array:
        xp = self.xp
        each = xp.broadcast_to(xp.expand_dims(roots, axis=1), (roots.shape[0], self.rows))
        nodes = xp.reshape(each, (-1,))
        if self.depth:
            (nodes,), _ = xp.scan(self._step, (nodes,), (), self.depth)
        return nodes

    def _step(self, carry: tuple[Array], _: tuple[()]) -> tuple[tuple[Array], tuple[()]]:
        (nodes,) = carry
        xp = self.xp
        node = xp.take_in_range(self.nodes, nodes)
        tests = node[:, 0]
        places = self.starts + xp.astype(tests >> SIDE_BITS, self.starts.dtype)
        x = xp.take_in_range(self.flat, places)
        split = self._split(node, nodes)
        if self.forest.common is None:
            goes = xp.not_equal((tests >> self._side(x, split)) & 1, 0)
        else:
            goes = _compare(xp, self.forest.common, x, split)
        if self.forest.sets is not None:
            goes = goes | self._is_member(nodes, places)
        return (xp.where(goes, node[:, 2], node[:, 1]),), ()

    def _split(self, node: Array, nodes: Array) -> Array:
        if node.shape[1] == 4:
            return self.xp.bitcast(node[:, 3], self.splits.dtype)
        return self.xp.take_in_range(self.splits, nodes)

    def _side(self, x: Array, split: Array) -> Array:
        """Return 0 for less, 1 for equal, 2 for greater, 3 for missing."""
        missing = self._number(self.xp.isnan(x)) * 3
        return self._number(x >= split) + self._number(x > split) + missing

    def _is_member(self, nodes: Array, places: Array) -> Array:
        xp, sets = self.xp, self.forest.sets
        assert sets is not None
        member = xp.take_in_range(self.member_places, places)
        word = xp.take_in_range(self.set_rows, nodes) * sets.words + (member >> 5)
        return xp.not_equal((xp.take_in_range(self.bits, word) >> (member & 31)) & 1, 0)

    def _member_places(self, members: Host) -> Array:
        """Return the index from 1 of each value of X among the members; 0 if it is not one."""
        xp = self.xp
        index = xp.searchsorted(xp.put(members), self.flat)
        index = xp.minimum(xp.astype(index, xp.dtype(INT32)), len(members) - 1)
        is_member = xp.equal(xp.take(xp.put(members), index, axis=0), self.flat)
        return xp.where(is_member, index + 1, xp.zeros_like(index))

    def _number(self, truth: Array) -> Array:
        return self.xp.astype(truth, self.xp.dtype(INT32))


def _compare(xp: Backend, sides: int, x: Array, split: Array) -> Array:
    """Return whether `x` is on one of the sides, which are the same for all nodes."""
    comparisons: dict[int, Any] = {
        SIDES["BRANCH_LEQ"]: xp.less_equal,
        SIDES["BRANCH_LT"]: xp.less,
        SIDES["BRANCH_GTE"]: xp.greater_equal,
        SIDES["BRANCH_GT"]: xp.greater,
        SIDES["BRANCH_EQ"]: xp.equal,
        SIDES["BRANCH_NEQ"]: xp.not_equal,
    }
    truth: Array = comparisons[sides & ~MISSING](x, split)
    if sides & MISSING:
        return truth | xp.isnan(x)
    return truth & ~xp.isnan(x) if sides == SIDES["BRANCH_NEQ"] else truth
