"""Validation of the lists of nodes and votes with which models describe trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.ops.definition import DType, Floats, Host, Ints, Strings
from sardonyx.ops.ml.forest import MISSING, SIDE_BITS, SIDES, Forest, Trees, planted
from sardonyx.ops.ml.tables import once

INT64 = np.dtype(np.int64)
FLOAT64 = np.dtype(np.float64)

HIGHEST_FEATURE = 2 ** (31 - SIDE_BITS)
MEMBER = list(SIDES).index("BRANCH_MEMBER")

Numbers = Floats | Host


@once
def forest_of_nodes(
    features: Ints,
    splits: Host,
    modes: Host,
    tracks_true: Ints | None,
    membership: Host | None,
    false_nodes: Ints,
    false_leaves: Ints,
    true_nodes: Ints,
    true_leaves: Ints,
    roots: Ints,
    targets: Ints,
    weights: Host,
    n_targets: int | None,
    aggregate: str,
    dtype: DType,
) -> Forest:
    """Return the forest of a model that numbers inner nodes and leaves separately."""
    count, leaves = len(features), len(targets)
    _require_length("nodes_*", count, splits, modes, false_nodes, false_leaves)
    _require_length("nodes_*", count, true_nodes, true_leaves)
    _require_length("leaf_*", leaves, weights)
    _require_trees(roots)
    codes = _within("nodes_modes", _integers(modes), len(SIDES))
    member_nodes, members = _memberships(codes, membership)
    trees = Trees(
        features=_within("nodes_featureids", features, HIGHEST_FEATURE),
        splits=np.asarray(splits, FLOAT64).ravel(),
        sides=np.asarray([*SIDES.values()])[codes] | _missing(tracks_true, count),
        member_nodes=member_nodes,
        members=members,
        children=np.stack(
            [
                _children("nodes_falsenodeids", false_nodes, false_leaves, leaves),
                _children("nodes_truenodeids", true_nodes, true_leaves, leaves),
            ],
            axis=1,
        ),
        roots=_within("tree_roots", roots, count),
        leaves=leaves,
        vote_leaves=np.arange(leaves),
        vote_targets=_targets(targets, n_targets),
        weights=np.ravel(weights),
        targets=_count_of_targets(targets, n_targets),
    )
    return planted(trees, aggregate, dtype)


def _integers(modes: Host) -> Host:
    if modes.dtype.kind not in "iu":
        raise ValueError(f"nodes_modes is {modes.dtype}, but must be integers")
    return modes


def _children(name: str, places: Ints, are_leaves: Ints, leaves: int) -> Host:
    """Return the children of all nodes; leaves are numbered after the nodes."""
    count, is_leaf = len(places), np.asarray(are_leaves, bool)
    children = np.asarray(places, INT64)
    _within(name, children[is_leaf], leaves)
    _within(name, children[~is_leaf], count)
    return np.where(is_leaf, children + count, children)


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
def forest_of_ids(
    tree_ids: Ints | None,
    node_ids: Ints | None,
    modes: Strings | None,
    features: Ints | None,
    values: Numbers,
    tracks_true: Ints | None,
    false_ids: Ints | None,
    true_ids: Ints | None,
    vote_trees: Ints | None,
    vote_nodes: Ints | None,
    targets: Ints | None,
    weights: Numbers,
    n_targets: int | None,
    aggregate: str,
    dtype: DType,
) -> Forest:
    """Return the forest of a model whose nodes, also leaves, have ids within their trees."""
    count = len(tree_ids or ())
    _require_length("nodes_*", count, node_ids, modes, features, values, false_ids, true_ids)
    _require_length("class_* or target_*", np.size(weights), vote_trees, vote_nodes, targets)
    _require_trees(tree_ids)
    sides = _sides(modes or ()) | _missing(tracks_true, count)
    is_leaf = np.asarray([mode == "LEAF" for mode in modes or ()], bool)
    inner = np.flatnonzero(~is_leaf)
    find = _Finder(tree_ids, node_ids, is_leaf)
    trees = find.trees
    voters = find("class_nodeids or target_nodeids", vote_trees, vote_nodes) - len(inner)
    # Some converters also give weights to inner nodes; no row ends there.
    counts = voters >= 0
    return planted(
        Trees(
            features=_within("nodes_featureids", _list(features)[inner], HIGHEST_FEATURE),
            splits=np.asarray(values, FLOAT64).ravel()[inner],
            sides=sides[inner],
            member_nodes=_list(None),
            members=np.empty(0),
            children=np.stack(
                [
                    find("nodes_falsenodeids", trees[inner], _list(false_ids)[inner]),
                    find("nodes_truenodeids", trees[inner], _list(true_ids)[inner]),
                ],
                axis=1,
            ),
            roots=find.roots(),
            leaves=count - len(inner),
            vote_leaves=voters[counts],
            vote_targets=_targets(targets, n_targets)[counts],
            weights=np.ravel(weights)[counts],
            targets=_count_of_targets(targets, n_targets),
        ),
        aggregate,
        dtype,
    )


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
        self.node_ids = np.unique(nodes)
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


def _targets(targets: Ints | None, count: int | None) -> Host:
    return _within("class_ids or target_ids", targets, _count_of_targets(targets, count))


def _count_of_targets(targets: Ints | None, count: int | None) -> int:
    count = max(targets or (), default=0) + 1 if count is None else count
    if count < 1:
        raise ValueError(f"the number of targets is {count}, but must be at least 1")
    return count
