"""Validation of the lists of nodes and votes with which models describe trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.ops.definition import DType, Floats, Host, Ints, Strings
from sardonyx.ops.ml.forest import MISSING, SIDE_BITS, SIDES, Forest, Trees, planted
from sardonyx.ops.ml.tables import once

INT64 = np.dtype(np.int64)
FLOAT64 = np.dtype(np.float64)

HIGHEST_FEATURE = 2 ** (31 - SIDE_BITS)
MEMBER = list(SIDES).index("BRANCH_MEMBER")

Numbers = Floats | Host


class NodeTests(NamedTuple):
    """How each node tests a feature: comparison and value, and where a missing feature leads."""

    # The names of the comparisons, or their positions in `SIDES`.
    modes: Any
    features: Ints | None
    values: Numbers
    tracks_true: Ints | None


class Children(NamedTuple):
    """For each node the position of one child, among the leaves if it is a leaf."""

    positions: Ints
    are_leaves: Ints


class Ids(NamedTuple):
    """The tree of each node, and the ids within that tree of the node and of its children."""

    trees: Ints | None
    nodes: Ints | None
    if_false: Ints | None
    if_true: Ints | None


class Votes(NamedTuple):
    """Weights for targets, and the leaves that they belong to; in order if leaves are numbered."""

    targets: Ints | None
    weights: Numbers
    n_targets: int | None
    trees: Ints | None = None
    nodes: Ints | None = None

    def checked_targets(self) -> tuple[Host, int]:
        """Return the target of each vote, and the number of targets."""
        largest = max(self.targets or (), default=0)
        count = largest + 1 if self.n_targets is None else self.n_targets
        if count < 1:
            raise ValueError(f"the number of targets is {count}, but must be at least 1")
        return _within("class_ids or target_ids", self.targets, count), count


@once
def forest_of_positions(
    tests: NodeTests,
    membership: Host | None,
    if_false: Children,
    if_true: Children,
    roots: Ints,
    votes: Votes,
    aggregate: str,
    dtype: DType,
) -> Forest:
    """Return the forest of a model that numbers inner nodes and leaves separately."""
    modes, features, values, tracks_true = tests
    count, leaves = len(features or ()), len(votes.targets or ())
    _require_length("nodes_*", count, values, modes, *if_false, *if_true)
    _require_length("leaf_*", leaves, votes.weights)
    _require_trees(roots)
    codes = _within("nodes_modes", _integers(np.asarray(modes)), len(SIDES))
    member_nodes, members = _memberships(codes, membership)
    targets, target_count = votes.checked_targets()
    children = [
        _children("nodes_falsenodeids", if_false, leaves),
        _children("nodes_truenodeids", if_true, leaves),
    ]
    trees = Trees(
        features=_within("nodes_featureids", features, HIGHEST_FEATURE),
        splits=np.asarray(values, FLOAT64).ravel(),
        sides=np.asarray([*SIDES.values()])[codes] | _missing(tracks_true, count),
        member_nodes=member_nodes,
        members=members,
        children=np.stack(children, axis=1),
        roots=_within("tree_roots", roots, count),
        leaves=leaves,
        vote_leaves=np.arange(leaves),
        vote_targets=targets,
        weights=np.ravel(votes.weights),
        targets=target_count,
    )
    return planted(trees, aggregate, dtype)


def _integers(modes: Host) -> Host:
    if modes.dtype.kind not in "iu":
        raise ValueError(f"nodes_modes is {modes.dtype}, but must be integers")
    return modes


def _children(name: str, children: Children, leaves: int) -> Host:
    """Return the children of all nodes; leaves are numbered after the nodes."""
    positions, is_leaf = _list(children.positions), np.asarray(children.are_leaves, bool)
    _within(name, positions[is_leaf], leaves)
    _within(name, positions[~is_leaf], len(positions))
    return np.where(is_leaf, positions + len(positions), positions)


def _memberships(codes: Host, values: Host | None) -> tuple[Host, Host]:
    """Return pairs of a node and a member of its set; each set in `values` ends with a NaN."""
    nodes = np.flatnonzero(codes == MEMBER)
    members = np.asarray(() if values is None else values, FLOAT64).ravel()
    is_end = np.isnan(members)
    if members.size and not is_end[-1]:
        members, is_end = np.append(members, np.nan), np.append(is_end, True)
    if np.count_nonzero(is_end) != len(nodes):
        raise ValueError(
            f"membership_values has {np.count_nonzero(is_end)} sets, each ended by a NaN, but "
            f"{len(nodes)} nodes test for membership"
        )
    which = np.cumsum(is_end)[~is_end]
    return nodes[which], members[~is_end]


@once
def forest_of_ids(tests: NodeTests, ids: Ids, votes: Votes, aggregate: str, dtype: DType) -> Forest:
    """Return the forest of a model whose nodes, also leaves, have ids within their trees."""
    modes, features, values, tracks_true = tests
    count, n_votes = len(ids.trees or ()), np.size(votes.weights)
    _require_length("nodes_*", count, *ids, modes, features, values)
    _require_length("class_* or target_*", n_votes, votes.trees, votes.nodes, votes.targets)
    _require_trees(ids.trees)
    sides = _sides(modes or ()) | _missing(tracks_true, count)
    is_leaf = np.asarray([mode == "LEAF" for mode in modes or ()], bool)
    inner = np.flatnonzero(~is_leaf)
    find = _Finder(ids.trees, ids.nodes, is_leaf)
    parents = find.trees[inner]
    targets, target_count = votes.checked_targets()
    children = [
        find("nodes_falsenodeids", parents, _list(ids.if_false)[inner]),
        find("nodes_truenodeids", parents, _list(ids.if_true)[inner]),
    ]
    voters = find("class_nodeids or target_nodeids", votes.trees, votes.nodes) - len(inner)
    # Some converters also give weights to inner nodes; no row ends there.
    counts = voters >= 0
    trees = Trees(
        features=_within("nodes_featureids", _list(features)[inner], HIGHEST_FEATURE),
        splits=np.asarray(values, FLOAT64).ravel()[inner],
        sides=sides[inner],
        member_nodes=_list(None),
        members=np.empty(0),
        children=np.stack(children, axis=1),
        roots=find.roots(),
        leaves=count - len(inner),
        vote_leaves=voters[counts],
        vote_targets=targets[counts],
        weights=np.ravel(votes.weights)[counts],
        targets=target_count,
    )
    return planted(trees, aggregate, dtype)


def _sides(modes: Strings) -> Host:
    sides = {"LEAF": 0, **SIDES}
    del sides["BRANCH_MEMBER"]
    unknown = sorted(set(modes) - set(sides))
    if unknown:
        raise ValueError(f"nodes_modes has {unknown[0]!r}, but must be of {', '.join(sides)}")
    return np.asarray([sides[mode] for mode in modes], INT64)


class _Finder:
    """Finds the place of a node by its tree and id; inner nodes come before leaves."""

    def __init__(self, tree_ids: Any, node_ids: Any, is_leaf: Host) -> None:
        self.trees, nodes = _list(tree_ids), _list(node_ids)
        self.place = np.empty(len(is_leaf), INT64)
        self.place[np.argsort(is_leaf, kind="stable")] = np.arange(len(is_leaf))
        self.tree_ids, self.first = np.unique(self.trees, return_index=True)
        self.node_ids = np.unique_counts(nodes).values  # `np.unique` imports numpy.ma.
        keys = self._keys(self.trees, nodes)
        self.order = np.argsort(keys, kind="stable")
        self.sorted = keys[self.order]
        twice = self.order[1:][self.sorted[1:] == self.sorted[:-1]]
        if twice.size:
            at = twice[0]
            raise ValueError(f"node {nodes[at]} of tree {self.trees[at]} is defined twice")

    def __call__(self, name: str, trees: Any, nodes: Any) -> Host:
        keys = self._keys(_list(trees), _list(nodes))
        rank = _rank(self.sorted, keys)
        missing = np.flatnonzero(rank < 0)
        if missing.size:
            at = missing[0]
            raise ValueError(
                f"{name} has node {nodes[at]} of tree {trees[at]}, which is not defined"
            )
        return self.place[self.order[rank]]

    def roots(self) -> Host:
        return self.place[self.first]

    def _keys(self, trees: Host, nodes: Host) -> Host:
        """Return one number per pair of ids, or -1 if an id is not in the model."""
        tree, node = _rank(self.tree_ids, trees), _rank(self.node_ids, nodes)
        return np.where((tree < 0) | (node < 0), -1, tree * len(self.node_ids) + node)


def _rank(ordered: Host, values: Host) -> Host:
    """Return the index of each value among ascending numbers; -1 if it is missing."""
    index = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[index] == values, index, -1)


# -- checks ---------------------------------------------------------------------------------------


def _list(values: Any) -> Host:
    return np.asarray(() if values is None else values, INT64).ravel()


def _require_length(name: str, length: int, *lists: Sequence[Any] | Host | None) -> None:
    sizes = [0 if one is None else np.size(one) for one in lists]
    if any(size != length for size in sizes):
        raise ValueError(f"the lists {name} must have {length} elements each, but have {sizes}")


def _within(name: str, values: Any, end: int) -> Host:
    numbers = _list(values)
    wrong = numbers[(numbers < 0) | (numbers >= end)]
    if wrong.size:
        raise ValueError(f"{name} has {wrong[0]}, but must be from 0 to {end - 1}")
    return numbers


def _missing(tracks_true: Ints | None, count: int) -> Host:
    if not tracks_true:
        return np.zeros(count, INT64)
    _require_length("nodes_missing_value_tracks_true and nodes_*", count, tracks_true)
    return np.where(_list(tracks_true) == 0, 0, MISSING)


def _require_trees(trees: Ints | None) -> None:
    if not trees:
        raise ValueError("there are no trees, but must be at least one")
