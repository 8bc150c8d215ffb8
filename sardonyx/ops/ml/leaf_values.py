"""Trees as tables of their leaves' values, on which later operators can be computed.

Whatever an elementwise operator does to the result of a tree, it does to the values of the leaves.
Isolation forests of scikit-learn have 25 such nodes behind each tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sardonyx.ops import activation, casting, comparison, elementwise
from sardonyx.ops.definition import Host, Op
from sardonyx.ops.indexing import Gather
from sardonyx.ops.layout import Reshape
from sardonyx.ops.ml.labels import LabelEncoder
from sardonyx.ops.ml.trees import TreeEnsembleRegressor

FLOAT32 = np.dtype(np.float32)
INT64 = np.dtype(np.int64)

# Operators that compute each element of their result from the same element of each operand.
_ELEMENTWISE: tuple[Op[Any], ...] = (
    activation.Relu, activation.Sigmoid, casting.Cast, comparison.And, comparison.Equal,
    comparison.Greater, comparison.GreaterOrEqual, comparison.Less, comparison.LessOrEqual,
    comparison.Or, comparison.Xor, elementwise.Abs, elementwise.Add, elementwise.Ceil,
    elementwise.Div, elementwise.Exp, elementwise.Floor, elementwise.Log, elementwise.Max,
    elementwise.Min, elementwise.Mul, elementwise.Neg, elementwise.Not, elementwise.Pow,
    elementwise.Reciprocal, elementwise.Round, elementwise.Sqrt, elementwise.Sub, elementwise.Sum,
    elementwise.Tanh, elementwise.Where, LabelEncoder,
)  # fmt: skip

# Attributes with one element per node, and those that are needed of a tree.
_OF_NODES = (
    "nodes_falsenodeids", "nodes_featureids", "nodes_modes", "nodes_nodeids", "nodes_treeids",
    "nodes_truenodeids", "nodes_values",
)  # fmt: skip
_OF_VOTES = ("target_ids", "target_nodeids", "target_treeids", "target_weights")
_OTHERS = (
    "aggregate_function", "n_targets", "nodes_hitrates", "nodes_missing_value_tracks_true",
    "post_transform",
)  # fmt: skip


class Tree(NamedTuple):
    """The only tree of a regressor with one target."""

    attributes: Mapping[str, Any]
    # Whether each node is a leaf, and the ids of those that are.
    is_leaf: Host
    leaves: Host

    def reading(self, columns: Host) -> Tree | None:
        """Return the tree that reads these columns of a matrix; None if it reads one too many."""
        features = np.asarray(self.attributes["nodes_featureids"], INT64)
        features = np.where(self.is_leaf, 0, features)
        if features.size and not 0 <= features.min() <= features.max() < len(columns):
            return None
        chosen = tuple(columns[features].tolist())
        return self._replace(attributes={**self.attributes, "nodes_featureids": chosen})


def is_elementwise(op: Op[Any] | None, constants: Sequence[Host]) -> bool:
    """Whether an operator, with these constants beside one column, acts on each element alone."""
    if op is Reshape:
        return [c.tolist() for c in constants] == [[-1, 1]]
    return any(op is one for one in _ELEMENTWISE) and all(
        constant.size == 1 and constant.ndim <= 2 for constant in constants
    )


def is_sum(op: Op[Any] | None) -> bool:
    return op is elementwise.Add or op is elementwise.Sum


def chosen_columns(
    op: Op[Any] | None, attributes: Mapping[str, Any], columns: Host | None, width: int
) -> Host | None:
    """Return which columns of a matrix an operator selects; None if it does something else."""
    if op is not Gather or columns is None or columns.ndim != 1 or columns.dtype.kind != "i":
        return None
    if attributes.get("axis", 0) != 1 or np.any((columns < -width) | (columns >= width)):
        return None
    return np.where(columns < 0, columns + width, columns)


def only_tree(op: Op[Any] | None, attributes: Mapping[str, Any]) -> tuple[Tree, Host] | None:
    """Return the tree of a regressor with the values of its leaves as a column.

    None if it is another operator, or has another form.
    """
    if op is not TreeEnsembleRegressor or set(attributes) - {*_OF_NODES, *_OF_VOTES, *_OTHERS}:
        return None
    if not {*_OF_NODES, *_OF_VOTES} <= set(attributes) or not _is_plain_sum(attributes):
        return None
    lengths = {len(attributes[name]) for name in _OF_NODES}
    votes = {len(attributes[name]) for name in _OF_VOTES}
    trees = {*attributes["nodes_treeids"], *attributes["target_treeids"]}
    if len(lengths) != 1 or len(votes) != 1 or len(trees) != 1:
        return None
    is_leaf = np.asarray([mode == "LEAF" for mode in attributes["nodes_modes"]], bool)
    leaves = np.asarray(attributes["nodes_nodeids"], INT64)[is_leaf]
    values = _values(leaves, attributes)
    return None if values is None else (Tree(attributes, is_leaf, leaves), values)


def _is_plain_sum(attributes: Mapping[str, Any]) -> bool:
    return (
        attributes.get("aggregate_function", "SUM") in ("SUM", "AVERAGE")
        and attributes.get("n_targets", 1) == 1
        and attributes.get("post_transform", "NONE") == "NONE"
        and not any(attributes["target_ids"])
    )


def _values(leaves: Host, attributes: Mapping[str, Any]) -> Host | None:
    """Return one value for each leaf; None if a leaf has several votes, or two have one id."""
    votes = dict(zip(attributes["target_nodeids"], attributes["target_weights"], strict=True))
    ids = leaves.tolist()
    if len(votes) < len(attributes["target_nodeids"]) or len(set(ids)) < len(ids):
        return None
    # Leaves without a vote count as zero. Votes of inner nodes mean nothing, as no row ends there.
    return np.asarray([votes.get(leaf, 0.0) for leaf in ids], FLOAT32).reshape(-1, 1)


def can_be_votes(values: Host) -> bool:
    """Whether a regressor can return these values: not other dtypes, and no negative zero."""
    return values.dtype == FLOAT32 and not np.any(np.signbit(values) & (values == 0))


def regressor_of(trees: Sequence[tuple[Tree, Host]]) -> dict[str, Any]:
    """Return the attributes of a regressor that adds up trees with these values of their leaves."""
    attributes = [tree.attributes for tree, _ in trees]
    joined: dict[str, Any] = {
        name: _joined(one[name] for one in attributes)
        for name in _OF_NODES
        if name != "nodes_treeids"
    }
    sizes = [len(tree.is_leaf) for tree, _ in trees]
    counts = [len(tree.leaves) for tree, _ in trees]
    joined["nodes_treeids"] = tuple(np.repeat(np.arange(len(trees)), sizes).tolist())
    joined["nodes_missing_value_tracks_true"] = _joined(
        one.get("nodes_missing_value_tracks_true") or (0,) * size
        for one, size in zip(attributes, sizes, strict=True)
    )
    joined["target_treeids"] = tuple(np.repeat(np.arange(len(trees)), counts).tolist())
    joined["target_nodeids"] = _joined(tree.leaves.tolist() for tree, _ in trees)
    joined["target_weights"] = _joined(values.ravel().tolist() for _, values in trees)
    joined["target_ids"] = (0,) * sum(counts)
    return {**joined, "n_targets": 1}


def _joined(lists: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(lists))
