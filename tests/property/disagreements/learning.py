"""ai.onnx.ml."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import (
    asks_where_nan_goes,
    count_of_labels,
    floats,
    has_one_score_for_two_classes,
    is_transformed,
    scores_nothing,
)

NAN = float("nan")
# The number that stands for BRANCH_MEMBER.
MEMBER = 6


def _stump(x: np.ndarray, **given: object) -> Case:
    """A tree of one node, for one row of one feature."""
    attributes: dict[str, object] = {
        "nodes_featureids": [0],
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [0],
        "nodes_modes": numpy_helper.from_array(np.zeros(1, np.uint8)),
        "nodes_splits": numpy_helper.from_array(floats(0)),
        "nodes_trueleafs": [1],
        "nodes_falseleafs": [1],
        "tree_roots": [0],
        "leaf_targetids": [0],
        "leaf_weights": numpy_helper.from_array(floats(1)),
    }
    return Case("TreeEnsemble", 5, (x[None],), {**attributes, **given}, domain="ai.onnx.ml")


def _two_classes(**given: object) -> Case:
    """A tree of one node that classifies one row of one feature."""
    attributes: dict[str, object] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_featureids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "classlabels_int64s": [0, 1],
    }
    row = (floats(0)[None],)
    given = attributes | given
    return Case("TreeEnsembleClassifier", 3, row, given, outputs=2, domain="ai.onnx.ml")


def _two_targets(**more: object) -> Case:
    """A tree of one node, whose leaves vote for one target each."""
    attributes: dict[str, object] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_featureids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 1],
        "target_weights": [1.0, 2.0],
        "n_targets": 2,
    }
    row = (floats(0)[None],)
    return Case("TreeEnsembleRegressor", 3, row, attributes | more, domain="ai.onnx.ml")


def _has_negative_members(case: Case) -> bool:
    given = case.attributes
    if MEMBER not in numpy_helper.to_array(given["nodes_modes"]):
        return False
    return bool(np.any(numpy_helper.to_array(given["membership_values"]) < 0))


ENTRIES = (
    Disagreement(
        ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"),
        "One score s for two classes: sardonyx transforms the scores -s and s; onnxruntime does "
        "not apply SOFTMAX and SOFTMAX_ZERO, and uses 1 - s and s in LinearClassifier.",
        "The standard does not say. Its reference implementation does the same as sardonyx.",
        OPEN,
        lambda case: (
            has_one_score_for_two_classes(case)
            and is_transformed(
                case, "SOFTMAX", "SOFTMAX_ZERO", *["NONE"] * (case.op == "LinearClassifier")
            )
        ),
        Case(
            "LinearClassifier",
            1,
            (floats(1)[None],),
            {"coefficients": [2.0], "intercepts": [0.0], "classlabels_ints": [0, 1]},
            outputs=2,
            domain="ai.onnx.ml",
        ),
    ),
    Disagreement(
        ("TreeEnsembleClassifier",),
        "Two classes with one score each: sardonyx returns the label of the higher score; "
        "onnxruntime returns the second label if its score is positive, `base_values` change this "
        "further, and its integer labels are 0 and 1 instead of the model's.",
        "For more than two classes, both return the label of the highest score.",
        OPEN,
        lambda case: count_of_labels(case) == 2 and len(set(case.attributes["class_ids"])) == 2,
        _two_classes(
            class_treeids=[0] * 4,
            class_nodeids=[1, 1, 2, 2],
            class_ids=[0, 1, 0, 1],
            class_weights=[2.0, 1.0, -2.0, 1.0],
        ),
    ),
    Disagreement(
        ("TreeEnsembleClassifier",),
        "One score for two classes, no negative weight, and a `post_transform` other than NONE and "
        "PROBIT: onnxruntime returns the second label if the score is above 0.5 before the "
        "transform, sardonyx if it is above 0.",
        "Otherwise the label is not that of the higher probability.",
        SARDONYX,
        lambda case: (
            count_of_labels(case) == 2
            and len(set(case.attributes["class_ids"])) == 1
            and min(case.attributes.get("class_weights", [-1.0])) >= 0
            and not is_transformed(case, "NONE", "PROBIT")
        ),
        _two_classes(
            class_treeids=[0, 0],
            class_nodeids=[1, 2],
            class_ids=[0, 0],
            class_weights=[0.25, 0.25],
            post_transform="LOGISTIC",
        ),
    ),
    Disagreement(
        ("TreeEnsembleClassifier",),
        "Of two classes only the second has scores: sardonyx computes the first score from the "
        "second, as it does where only the first has scores; onnxruntime returns 0, transformed.",
        "The standard does not say, and no known converter writes it.",
        OPEN,
        lambda case: count_of_labels(case) == 2 and set(case.attributes["class_ids"]) == {1},
        _two_classes(
            class_treeids=[0, 0],
            class_nodeids=[1, 2],
            class_ids=[1, 1],
            class_weights=[2.0, -2.0],
        ),
    ),
    Disagreement(
        ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
        "NaN, if nodes compare in different ways, or all by !=: onnxruntime does not look up the "
        "direction of each node.",
        "`nodes_missing_value_tracks_true` sets the direction for each node.",
        SARDONYX,
        asks_where_nan_goes,
        Case(
            "TreeEnsembleRegressor",
            3,
            (floats(NAN)[None],),
            {
                "nodes_treeids": [0, 0, 0],
                "nodes_featureids": [0, 0, 0],
                "nodes_nodeids": [0, 1, 2],
                "nodes_values": [0.0, 0.0, 0.0],
                "nodes_modes": ["BRANCH_NEQ", "LEAF", "LEAF"],
                "nodes_truenodeids": [1, 0, 0],
                "nodes_falsenodeids": [2, 0, 0],
                "target_treeids": [0, 0],
                "target_nodeids": [1, 2],
                "target_ids": [0, 0],
                "target_weights": [1.0, 2.0],
                "n_targets": 1,
            },
            domain="ai.onnx.ml",
        ),
    ),
    Disagreement(
        ("LinearRegressor",),
        "SOFTMAX_ZERO of scores that are all 0: sardonyx returns halves, onnxruntime NaN.",
        "The standard does not say. Its reference implementation returns halves.",
        OPEN,
        scores_nothing,
        Case(
            "LinearRegressor",
            1,
            (floats(0).reshape(1, 1),),
            {"coefficients": [1.0, 2.0], "targets": 2, "post_transform": "SOFTMAX_ZERO"},
            domain="ai.onnx.ml",
        ),
    ),
    Disagreement(
        ("LinearRegressor", "TreeEnsembleRegressor"),
        "`post_transform` of one target: onnxruntime does not apply it.",
        "The transform applies to the score, and there is one score.",
        SARDONYX,
        lambda case: (
            case.attributes.get("targets", case.attributes.get("n_targets", 1)) == 1
            and not is_transformed(case, "NONE")
        ),
        Case(
            "LinearRegressor",
            1,
            (floats(1)[None],),
            {"coefficients": [2.0], "intercepts": [0.0], "post_transform": "LOGISTIC"},
            domain="ai.onnx.ml",
        ),
    ),
    Disagreement(
        ("TreeEnsembleRegressor",),
        "`base_values` of several targets: onnxruntime does not add those of targets for which no "
        "reached leaf votes.",
        "They are added to the final prediction, whatever the leaves.",
        SARDONYX,
        lambda case: (
            case.attributes.get("n_targets", 1) > 1 and bool(case.attributes.get("base_values"))
        ),
        _two_targets(base_values=[10.0, 20.0]),
    ),
    Disagreement(
        ("TreeEnsemble",),
        "`post_transform` 1 and 2: onnxruntime swaps them.",
        "1 is SOFTMAX and 2 is LOGISTIC.",
        SARDONYX,
        lambda case: case.attributes.get("post_transform") in (1, 2),
        _stump(floats(0), n_targets=2, post_transform=1),
    ),
    Disagreement(
        ("TreeEnsemble",),
        "BRANCH_MEMBER with a negative member: onnxruntime accepts numbers between the members, "
        "such as 0.5 for {-3, 0}.",
        "A value is a member only if it is one of `membership_values`.",
        SARDONYX,
        _has_negative_members,
        _stump(
            floats(0.5),
            nodes_modes=numpy_helper.from_array(np.array([MEMBER], np.uint8)),
            membership_values=numpy_helper.from_array(floats(-3, 0, NAN)),
            leaf_targetids=[0, 0],
            leaf_weights=numpy_helper.from_array(floats(1, 2)),
            nodes_trueleafs=[1],
            nodes_falsenodeids=[1],
            n_targets=1,
        ),
    ),
)
