"""Random trees, as the attributes of each version, and a plain walk down them."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

COMPARISONS = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}
MODES = (*COMPARISONS, "BRANCH_MEMBER")


@dataclass
class Leaf:
    votes: list[tuple[int, float]]


@dataclass
class Node:
    mode: str
    feature: int
    split: float
    tracks_true: bool
    if_true: Node | Leaf
    if_false: Node | Leaf
    members: list[float] = field(default_factory=list)

    def leaf_of(self, row: np.ndarray) -> Leaf:
        x = row[self.feature].item()
        if math.isnan(x):
            goes = self.tracks_true
        elif self.mode == "BRANCH_MEMBER":
            goes = x in self.members
        else:
            goes = COMPARISONS[self.mode](x, self.split)
        child = self.if_true if goes else self.if_false
        return child if isinstance(child, Leaf) else child.leaf_of(row)


def grown(
    rng: np.random.Generator,
    *,
    depth: int = 4,
    features: int = 3,
    targets: int = 1,
    modes: tuple[str, ...] = tuple(COMPARISONS),
    votes: str = "any",
) -> Node:
    """A tree over small integers, so that features often equal a split."""

    def node(depth: int) -> Node | Leaf:
        if not depth or rng.random() < 0.1:
            chosen = range(targets) if votes == "all" else [int(rng.integers(targets))]
            return Leaf([(target, float(np.float32(rng.normal()))) for target in chosen])
        return Node(
            str(rng.choice(modes)),
            int(rng.integers(features)),
            float(rng.integers(-2, 3)),
            bool(rng.integers(2)),
            node(depth - 1),
            node(depth - 1),
            sorted(set(rng.integers(-3, 4, 3).astype(float).tolist())),
        )

    root = node(depth)
    return (
        root
        if isinstance(root, Node)
        else grown(rng, depth=depth, features=features, targets=targets, modes=modes, votes=votes)
    )


def scores(trees: list[Node], X: np.ndarray, targets: int, aggregate: str = "SUM") -> np.ndarray:
    """What the trees vote, in float64; 0 where none votes."""
    result = np.zeros((len(X), targets))
    for row, out in zip(X, result, strict=True):
        heard: dict[int, list[float]] = {}
        for tree in trees:
            for target, weight in tree.leaf_of(row).votes:
                heard.setdefault(target, []).append(weight)
        for target, weights in heard.items():
            total = {"MIN": min, "MAX": max}.get(aggregate, math.fsum)(weights)
            out[target] = total / len(trees) if aggregate == "AVERAGE" else total
    return result


def with_ids(trees: list[Node], prefix: str = "target", *, missing: bool = True) -> dict[str, Any]:
    """As TreeEnsembleRegressor and TreeEnsembleClassifier have them."""
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    if missing:
        names += ("missing_value_tracks_true",)
    lists: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    votes: dict[str, list[Any]] = {
        f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
    }

    def write(tree: int, place: int, one: Node | Leaf, count: int) -> int:
        """Write a node at its place, and all below it from `count` on."""
        if isinstance(one, Leaf):
            row: list[Any] = [tree, place, "LEAF", 0, 0.0, 0, 0, 0]
            for target, weight in one.votes:
                for values, value in zip(
                    votes.values(), (tree, place, target, weight), strict=True
                ):
                    values.append(value)
        else:
            row = [tree, place, one.mode, one.feature, one.split, count, count + 1, one.tracks_true]
        for name, value in zip(lists, row, strict=False):
            lists[name].append(int(value) if isinstance(value, bool) else value)
        if isinstance(one, Node):
            below, count = count, count + 2
            count = write(tree, below, one.if_true, count)
            count = write(tree, below + 1, one.if_false, count)
        return count

    for i, root in enumerate(trees):
        write(i, 0, root, 1)
    return {**lists, **votes}


def with_leaves(trees: list[Node], dtype: Any) -> dict[str, Any]:
    """As TreeEnsemble has them. Each leaf votes once."""
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []
    members: dict[int, list[float]] = {}

    def write(one: Node | Leaf) -> tuple[int, int]:
        if isinstance(one, Leaf):
            leaves.append(one.votes[0])
            return len(leaves) - 1, 1
        place = len(nodes)
        nodes.append([])
        if one.mode == "BRANCH_MEMBER":
            members[place] = [*one.members, math.nan]
        nodes[place] = [
            one.feature,
            MODES.index(one.mode),
            one.split,
            int(one.tracks_true),
            *write(one.if_true),
            *write(one.if_false),
        ]
        return place, 0

    roots = [write(tree)[0] for tree in trees]
    columns = [list(column) for column in zip(*nodes, strict=True)]
    ids, modes, splits, tracks, true_ids, true_leaves, false_ids, false_leaves = columns
    known = {
        "nodes_featureids": ids,
        "nodes_modes": np.asarray(modes, np.uint8),
        "nodes_splits": np.asarray(splits, dtype),
        "nodes_missing_value_tracks_true": tracks,
        "nodes_truenodeids": true_ids,
        "nodes_trueleafs": true_leaves,
        "nodes_falsenodeids": false_ids,
        "nodes_falseleafs": false_leaves,
        "tree_roots": roots,
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": np.asarray([weight for _, weight in leaves], dtype),
    }
    sets = [value for place in sorted(members) for value in members[place]]
    return known | ({"membership_values": np.asarray(sets, dtype)} if sets else {})
