"""Tree ensembles: TreeEnsemble since version 5, and the older classifier and regressor."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, Value, Walk, op
from sardonyx.ops.ml import rows
from sardonyx.ops.ml.forest import AGGREGATES, walked
from sardonyx.ops.ml.nodes import (
    Children,
    Ids,
    NodeTests,
    Numbers,
    Votes,
    forest_of_ids,
    forest_of_positions,
)
from sardonyx.ops.ml.rows import FLOAT64
from sardonyx.ops.ml.tables import once


@op(domain="ai.onnx.ml")
def TreeEnsemble(
    xp: Backend,
    X: Array,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Ints,
    leaf_weights: Host,
    membership_values: Host | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_hitrates: Host | None = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Host,
    nodes_splits: Host,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> Array:
    """Return scores; missing features (NaN) follow `nodes_missing_value_tracks_true`."""
    x = _rows_beside(xp, X, nodes_splits, leaf_weights, membership_values)
    aggregate = _named("aggregate_function", aggregate_function, AGGREGATES)
    forest = forest_of_positions(
        NodeTests(nodes_modes, nodes_featureids, nodes_splits, nodes_missing_value_tracks_true),
        membership_values,
        Children(nodes_falsenodeids, nodes_falseleafs),
        Children(nodes_truenodeids, nodes_trueleafs),
        tree_roots,
        Votes(leaf_targetids, leaf_weights, n_targets),
        aggregate,
        xp.numpy_dtype(x.dtype),
    )
    votes = walked(xp, forest, x, aggregate)
    transform = _named("post_transform", post_transform, rows.TRANSFORMS)
    return xp.astype(rows.transformed(xp, votes, transform), X.dtype)


def _scores(
    xp: Backend,
    X: Array,
    votes: Votes,
    aggregate: str,
    *,
    base_values: Floats | None = None,
    base_values_as_tensor: Host | None = None,
    nodes_falsenodeids: Ints | None = None,
    nodes_featureids: Ints | None = None,
    nodes_hitrates: Floats | None = None,
    nodes_hitrates_as_tensor: Host | None = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Strings | None = None,
    nodes_nodeids: Ints | None = None,
    nodes_treeids: Ints | None = None,
    nodes_truenodeids: Ints | None = None,
    nodes_values: Floats | None = None,
    nodes_values_as_tensor: Host | None = None,
) -> Array:
    """Return the aggregated votes for each row, plus the base values."""
    values = _either("nodes_values", nodes_values, nodes_values_as_tensor)
    base = _either("base_values", base_values, base_values_as_tensor)
    tests = NodeTests(nodes_modes, nodes_featureids, values, nodes_missing_value_tracks_true)
    ids = Ids(nodes_treeids, nodes_nodeids, nodes_falsenodeids, nodes_truenodeids)
    x = _rows_beside(xp, X, values, votes.weights, base)
    forest = forest_of_ids(tests, ids, votes, aggregate, xp.numpy_dtype(x.dtype))
    scores = walked(xp, forest, x, aggregate)
    if not np.size(base):
        return scores
    return scores + rows.per_column(xp, "base_values", base, scores, or_one=True)


@op(domain="ai.onnx.ml")
def TreeEnsembleClassifier(
    walk: Walk,
    X: Array,
    *,
    class_ids: Ints | None = None,
    class_nodeids: Ints | None = None,
    class_treeids: Ints | None = None,
    class_weights: Floats | None = None,
    class_weights_as_tensor: Host | None = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Strings | None = None,
    post_transform: str = "NONE",
    **others: Annotated[Any, _scores],
) -> tuple[Value, Value]:
    """Return labels and scores; if only one of two classes has weights, its score decides."""
    labels = rows.class_labels(classlabels_int64s, classlabels_strings)
    weights = _either("class_weights", class_weights, class_weights_as_tensor)
    return rows.classified(
        walk,
        tree_classes,
        X,
        labels,
        rows.names_of_top(labels),
        class_ids=class_ids,
        class_nodeids=class_nodeids,
        class_treeids=class_treeids,
        class_weights=weights,
        post_transform=post_transform,
        **others,
    )


def tree_classes(
    xp: Backend,
    X: Array,
    *,
    labels: Host,
    class_ids: Ints | None,
    class_nodeids: Ints | None,
    class_treeids: Ints | None,
    class_weights: Numbers,
    post_transform: str,
    **others: Any,
) -> tuple[Array, Array]:
    votes = Votes(class_ids, class_weights, len(labels), class_treeids, class_nodeids)
    scores = _scores(xp, X, votes, "SUM", **others)
    sole, are_positive = _sole_class(class_ids, class_weights)
    if len(labels) == 2 and sole is not None:
        # Without negative weights, the score is a probability.
        likely = post_transform == "PROBIT" or (post_transform == "NONE" and are_positive)
        scores = rows.two_sided(xp, scores[:, sole], is_probability=likely)
    top = rows.top_labels(xp, scores, labels)
    return top, rows.finished(xp, scores, post_transform)


@once
def _sole_class(class_ids: Ints | None, weights: Any) -> tuple[int | None, bool]:
    """Return the class with weights if there is only one, and whether no weight is negative."""
    classes = set(class_ids or ())
    return classes.pop() if len(classes) == 1 else None, bool(np.min(weights, initial=0) >= 0)


@op(domain="ai.onnx.ml")
def TreeEnsembleRegressor(
    xp: Backend,
    X: Array,
    *,
    aggregate_function: str = "SUM",
    n_targets: int | None = None,
    post_transform: str = "NONE",
    target_ids: Ints | None = None,
    target_nodeids: Ints | None = None,
    target_treeids: Ints | None = None,
    target_weights: Floats | None = None,
    target_weights_as_tensor: Host | None = None,
    **others: Annotated[Any, _scores],
) -> Array:
    """Return the trees' aggregated votes plus the base values."""
    rows.require_choice("aggregate_function", aggregate_function, AGGREGATES)
    weights = _either("target_weights", target_weights, target_weights_as_tensor)
    votes = Votes(target_ids, weights, n_targets, target_treeids, target_nodeids)
    scores = _scores(xp, X, votes, aggregate_function, **others)
    return rows.finished(xp, scores, post_transform)


def _named(name: str, number: int, names: tuple[str, ...]) -> str:
    if not 0 <= number < len(names):
        raise ValueError(f"{name} is {number}, but must be from 0 to {len(names) - 1}")
    return names[number]


def _either(name: str, floats: Floats | None, tensor: Host | None) -> Any:
    """Return numbers that are either floats or, to allow float64, a tensor."""
    if floats and tensor is not None and tensor.size:
        raise ValueError(
            f"{name} and {name}_as_tensor are both present, but only one of them may be"
        )
    return tensor if not floats and tensor is not None else floats or ()


def _rows_beside(xp: Backend, X: Array, *numbers: Any) -> Array:
    """Return `X` as a matrix of floats, in float64 if any of the numbers are."""
    x = rows.rows_of(xp, X)
    is_exact = any(isinstance(n, np.ndarray) and n.dtype == FLOAT64 for n in numbers)
    return xp.astype(x, xp.dtype(FLOAT64)) if is_exact else x
